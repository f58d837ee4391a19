"""What happens is told to whoever listens: a stream of events, and DMTF's own checks of it."""

import json
import threading

import requests
from rack import USER
from redfish_protocol_validator import service_details, utils
from redfish_protocol_validator.constants import RequestType, Result
from redfish_protocol_validator.system_under_test import SystemUnderTest

SERVICE = "/redfish/v1/EventService"
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
    """The validator's checks of streams. Its program leaves them out, because of errors of its own; asked for by name,
    they run. Each needs events, which are made meanwhile."""
    sut = SystemUnderTest(manager.url, USER, manager.password, verify=str(manager.authority_file))
    sut.login()
    sut.set_nav_prop_uri("Subscriptions", f"{SERVICE}/Subscriptions")
    sut.set_server_sent_event_uri(f"{SERVICE}/SSE")
    opened, place = utils.get_sse_stream(sut)
    sut.set_event_dest_uri(place)
    sut.add_response(f"{SERVICE}/SSE", opened, request_type=RequestType.STREAMING)
    stop = threading.Event()

    def tell():
        while not stop.wait(0.5):
            manager.request("POST", TEST_EVENT, json={"MessageId": "ResourceEvent.1.4.TestMessage"})

    teller = threading.Thread(target=tell)
    teller.start()
    try:
        service_details.test_server_sent_events(sut)
    finally:
        stop.set()
        teller.join()
        sut.logout()
    found = {assertion.name: entries for assertion, entries in sut.results.items()}
    verdicts = {name: [entry["result"].name for entry in entries] for name, entries in found.items()}
    suite.evidence["DMTF's checks of streams"] = verdicts
    failed = {name: entries for name, entries in found.items() if any(e["result"] == Result.FAIL for e in entries)}
    suite.check(not failed, "DMTF's checks of streams: 0 FAIL", str(failed)[:2000])
    passed = sum(verdict == ["PASS"] for verdict in verdicts.values())
    suite.check(passed >= 10, "DMTF's checks of streams: they were made", verdicts)


def judge_all(suite, manager):
    composing_is_told(suite, manager)
    judged_by_dmtf(suite, manager)
