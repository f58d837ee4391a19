"""What happens is told to whoever listens: a stream of events, and DMTF's own checks of it."""

import json
import threading

import requests
from rack import USER
from redfish_protocol_validator import security_details, service_details, service_requests, utils
from redfish_protocol_validator.constants import RequestType, Result
from redfish_protocol_validator.system_under_test import SystemUnderTest

SERVICE = "/redfish/v1/EventService"
# What DMTF's checks said that were asked for by name.
ASKED_BY_NAME = "DMTF's checks, asked for by name"
TEST_EVENT = f"{SERVICE}/Actions/EventService.SubmitTestEvent"


def session(manager):
    opened = requests.Session()
    opened.verify, opened.auth = str(manager.authority_file), (USER, manager.password)
    opened.trust_env = False
    return opened


def payloads(stream):
    for line in stream.iter_lines():
        if line.startswith(b"data: "):
            yield json.loads(line[len(b"data: ") :])


def composing_is_told(suite, manager):
    with session(manager).get(manager.url + SERVICE + "/SSE", stream=True, timeout=60) as stream:
        suite.check(stream.status_code == 200, "a stream of events opens", stream.headers)
        done = manager.poolwright("compose", "--name", "heard", "--gpus", "1")
        suite.check(done.code == 0, "something is composed while somebody listens", done)
        heard, system = [], None
        for payload in payloads(stream):
            for record in payload.get("Events", []):
                heard.append(record["MessageId"])
                if record["MessageId"].endswith(".ResourceCreated"):
                    system = record["OriginOfCondition"]["@odata.id"]
            if system:
                break
    suite.check("TaskEvent.1.0.TaskStarted" in heard, "its task is told", heard)
    suite.check("ResourceEvent.1.4.ResourceStateChanged" in heard, "so are its GPUs", heard)
    answer = manager.request("GET", system)
    suite.check(answer.json().get("SystemType") == "Composed", "the system is where the event says", answer.text)
    manager.poolwright("release", "heard", "--yes")


def judged_by_dmtf(suite, manager):
    """Checks that the validator's program leaves out: those of streams, because of errors of its own, and the one of
    POST that it has no refused POST for. Asked for by name, they run. Those of streams need events, made meanwhile."""
    sut = SystemUnderTest(manager.url, USER, manager.password, verify=str(manager.authority_file))
    sut.login()
    sut.set_nav_prop_uri("Subscriptions", f"{SERVICE}/Subscriptions")
    sut.set_server_sent_event_uri(f"{SERVICE}/SSE")
    opened, place = utils.get_sse_stream(sut)
    sut.set_event_dest_uri(place)
    sut.add_response(f"{SERVICE}/SSE", opened, request_type=RequestType.STREAMING)
    sut.add_response(TEST_EVENT, sut.post(TEST_EVENT, json={"Colour": "red"}))
    stop = threading.Event()

    def tell():
        while not stop.wait(0.5):
            manager.request("POST", TEST_EVENT, json={"MessageId": "ResourceEvent.1.4.TestMessage"})

    teller = threading.Thread(target=tell)
    teller.start()
    try:
        service_details.test_server_sent_events(sut)
        security_details.test_session_termination_side_effects(sut)
        service_requests.test_data_mod_errors(sut)
    finally:
        stop.set()
        teller.join()
        sut.logout()
    found = {assertion.name: entries for assertion, entries in sut.results.items()}
    verdicts = {name: [entry["result"].name for entry in entries] for name, entries in found.items()}
    failed = {name: entries for name, entries in found.items() if any(e["result"] == Result.FAIL for e in entries)}
    suite.check(not failed, "DMTF's checks by name: 0 FAIL", str(failed)[:2000])
    passed = {name: verdict for name, verdict in verdicts.items() if set(verdict) == {"PASS"}}
    suite.evidence[ASKED_BY_NAME] = passed
    suite.equal(sorted(verdicts.keys() - passed.keys()), [], "DMTF's checks by name: they were made")
    suite.check(len(passed) >= 15, "DMTF's checks by name: all of them", verdicts)


def judge_all(suite, manager):
    composing_is_told(suite, manager)
    judged_by_dmtf(suite, manager)
