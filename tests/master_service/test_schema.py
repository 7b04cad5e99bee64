"""Numbers and types of all fields of the master service, those of TensorFlow's `master.proto`."""

from __future__ import annotations

from headrace.pb import master_pb2

FIELDS = """
CreateSessionRequest: 1 graph_def GraphDef, 2 config ConfigProto, 3 target string
CreateSessionResponse: 1 session_handle string, 2 graph_version int64
ExtendSessionRequest: 1 session_handle string, 2 graph_def GraphDef, 3 current_graph_version int64
ExtendSessionResponse: 4 new_graph_version int64
RunStepRequest: 1 session_handle string, 2 feed NamedTensorProto*, 3 fetch string*, 4 target string*, 5 options \
RunOptions, 6 partial_run_handle string, 7 store_errors_in_response_body bool, 8 request_id int64
RunStepResponse: 1 tensor NamedTensorProto*, 2 metadata RunMetadata, 3 status_code Code, 4 status_error_message string
PartialRunSetupRequest: 1 session_handle string, 2 feed string*, 3 fetch string*, 4 target string*, 5 request_id int64
PartialRunSetupResponse: 1 partial_run_handle string
CloseSessionRequest: 1 session_handle string
CloseSessionResponse:
ResetRequest: 1 container string*, 2 device_filters string*
ResetResponse:
ListDevicesRequest: 1 session_handle string
ListDevicesResponse: 1 local_device DeviceAttributes*, 2 remote_device DeviceAttributes*
MakeCallableRequest: 1 session_handle string, 2 options CallableOptions, 3 request_id int64
MakeCallableResponse: 1 handle int64
RunCallableRequest: 1 session_handle string, 2 handle int64, 3 feed TensorProto*, 4 request_id int64
RunCallableResponse: 1 fetch TensorProto*, 2 metadata RunMetadata
ReleaseCallableRequest: 1 session_handle string, 2 handle int64
ReleaseCallableResponse:
"""

KINDS = {3: "int64", 8: "bool", 9: "string"}  # numbers of types in descriptors


def test_the_fields_are_those_of_tensorflow() -> None:
    found = []
    for name, message in master_pb2.DESCRIPTOR.message_types_by_name.items():
        fields = []
        for f in message.fields:
            of = f.message_type or f.enum_type
            kind = KINDS[f.type] if of is None else of.name
            fields.append(f"{f.number} {f.name} {kind}{'*' if f.is_repeated else ''}")
        found.append(f"{name}: {', '.join(fields)}".rstrip())
    assert found == FIELDS.replace("\\\n", "").strip().splitlines()
