"""Google Cloud Storage on loopback: python -m tests.support.gcs_emulator PORT

It has a bucket "bucket". The emulator of the package index lacks two things that are added here:
generations, on which uploads and downloads may depend, so that two writers of an object see each
other; and content that ends in a line break: gcsfs puts a bare "\\n" before the last boundary, and
the parser of e-mails takes a "\\r" before that for a part of it.
"""

import json
import sys
from http import HTTPStatus

from gcp_storage_emulator.exceptions import NotFound
from gcp_storage_emulator.handlers import objects

_insert, _download = objects.insert, objects.download


def _generation(storage, bucket, name):
    try:
        return storage.get_file_obj(bucket, name)["generation"]
    except NotFound:
        return "0"


def insert(request, response, storage, *args, **kwargs):
    if wanted := request.query.get("ifGenerationMatch"):
        (name,) = request.query.get("name") or [request.data["meta"]["name"]]
        if wanted != [_generation(storage, request.params["bucket_name"], name)]:
            response.status = HTTPStatus.PRECONDITION_FAILED
            response.json({"error": {"code": 412, "message": "conditionNotMet", "errors": []}})
            return
    _insert(request, response, storage, *args, **kwargs)


def download(request, response, storage, *args, **kwargs):
    generation = _generation(storage, request.params["bucket_name"], request.params["object_id"])
    if request.query.get("ifGenerationNotMatch") == [generation] != ["0"]:
        response.status = HTTPStatus.NOT_MODIFIED
        return
    if generation != "0":
        response["x-goog-generation"] = generation
    _download(request, response, storage, *args, **kwargs)


objects.insert, objects.download = insert, download

from gcp_storage_emulator import server  # noqa: E402 (it reads objects.insert)

_read_data = server._read_data


def read_data(handler, query):
    kind = handler.headers.get("Content-Type") or ""
    if not kind.startswith("multipart/related"):
        return _read_data(handler, query)
    boundary = b"\n--" + kind.partition("boundary=")[2].strip('"').encode()
    meta, content = (b"\n" + server._read_raw_data(handler)).split(boundary)[1:3]
    header, _, content = content.partition(b"\n\n")
    return {
        "meta": json.loads(meta.partition(b"\n\n")[2]),
        "content": content,
        "content-type": header.partition(b":")[2].strip().decode(),
    }


server._read_data = read_data

if __name__ == "__main__":
    server.create_server("127.0.0.1", int(sys.argv[1]), True, default_bucket="bucket").run()
