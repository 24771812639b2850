"""Google Cloud Storage on loopback: python -m tests.support.gcs_emulator PORT

It has a bucket "bucket". Generations, on which uploads and downloads may depend, are what the
emulator of the package index leaves out: two writers of an object would not see each other.
"""

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

if __name__ == "__main__":
    from gcp_storage_emulator import server  # reads objects.insert

    server.create_server("127.0.0.1", int(sys.argv[1]), True, default_bucket="bucket").run()
