"""Google Cloud Storage on loopback: python emulator.py PORT, with a bucket "bucket".

The emulator's own answer to a conditional upload is to overwrite, so that condition is added here.
"""

import sys
import threading
from http import HTTPStatus

from gcp_storage_emulator.exceptions import NotFound
from gcp_storage_emulator.handlers import objects

_insert, _lock = objects.insert, threading.Lock()


def insert(request, response, storage, *args, **kwargs):
    if request.query.get("ifGenerationMatch") != ["0"]:
        return _insert(request, response, storage, *args, **kwargs)
    with _lock:
        name = request.query["name"] if "name" in request.query else [request.data["meta"]["name"]]
        try:
            storage.get_file_obj(request.params["bucket_name"], name[0])
        except NotFound:
            return _insert(request, response, storage, *args, **kwargs)
    response.status = HTTPStatus.PRECONDITION_FAILED
    return response.json({"error": {"code": 412, "message": "conditionNotMet", "errors": []}})


objects.insert = insert

if __name__ == "__main__":
    from gcp_storage_emulator import server  # reads objects.insert

    running = server.create_server("127.0.0.1", int(sys.argv[1]), True, default_bucket="bucket")
    running.run()
