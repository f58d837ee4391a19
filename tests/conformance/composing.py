"""Composing through Redfish, as a client that knows nothing but Redfish does it."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import redfish
from rack import USER, links

BLOCKS = "/redfish/v1/CompositionService/ResourceBlocks"
SYSTEMS = "/redfish/v1/Systems"


class Client:
    def __init__(self, manager):
        self.manager = manager

    def get(self, uri):
        return self.manager.request("GET", uri).json()

    def free(self, kind):
        """Free blocks of a kind, as the service's own filter finds them."""
        wanted = f"{BLOCKS}?$filter=Pool eq 'Free' and ResourceBlockType eq '{kind}'"
        return [block["@odata.id"] for block in self.get(wanted)["Members"]]

    def compose(self, name, blocks, **headers):
        body = {"Name": name, "Links": {"ResourceBlocks": [{"@odata.id": block} for block in blocks]}}
        return self.manager.request("POST", SYSTEMS, json=body, headers=headers)

    def tasks(self, latest):
        """The latest tasks, the latest first."""
        tasks = [self.get(task["@odata.id"]) for task in self.get("/redfish/v1/TaskService/Tasks")["Members"]]
        tasks.sort(key=lambda task: task["StartTime"], reverse=True)
        return tasks[:latest]

    def monitors(self, latest):
        """What the monitors of the latest tasks answer."""
        return [self.manager.request("GET", task["TaskMonitor"]) for task in self.tasks(latest)]

    def created(self, latest):
        """What the latest tasks have made."""
        return [list(links(task.get("Links", {}).get("CreatedResources", []))) for task in self.tasks(latest)]

    def came_of(self, answer):
        """What the monitor of a task says in the end."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            told = self.manager.request("GET", answer.headers["Location"])
            if told.status_code != 202:
                return told
            time.sleep(0.05)
        raise TimeoutError(answer.text)

    def act(self, system, action, block, headers=None, **more):
        target = system["Actions"][f"#ComputerSystem.{action}"]["target"]
        return self.manager.request("POST", target, json={"ResourceBlock": {"@odata.id": block}, **more}, headers=headers)


def blocks_of(system):
    return sorted(block["@odata.id"] for block in system["Links"]["ResourceBlocks"])


def messages(answer):
    return [message["MessageId"].rpartition(".")[2] for message in answer.json()["error"]["@Message.ExtendedInfo"]]


def compose_of_blocks(suite, client):
    host, (one, two, *_) = client.free("ComputerSystem")[0], client.free("Processor")
    made = client.compose("farm", [host, one], **{"Idempotency-Key": "farm-1"})
    if not suite.check(made.status_code == 201, "a system is composed of blocks", made.text):
        return
    place = made.headers["Location"]
    system = client.get(place)
    suite.equal(blocks_of(system), sorted([host, one]), "it is composed of what was named")
    boxes = [link["@odata.id"] for link in system["Links"]["Chassis"]]
    suite.check(boxes and all("Id" in client.get(box) for box in boxes), "it says in which boxes its GPUs lie", boxes)
    suite.equal(
        [(told.status_code, told.headers.get("Location")) for told in client.monitors(1)],
        [(201, place)],
        "its task's monitor answers as the request was answered",
    )
    suite.equal(client.created(1), [[place]], "and its task leads to the system")
    suite.equal((system["SystemType"], system["Name"]), ("Composed", "farm"), "it says what it is")
    physical = system["Links"]["SupplyingComputerSystems"][0]["@odata.id"]
    for uri, expected in ((place, "GET, HEAD, PATCH, DELETE"), (physical, "GET, HEAD")):
        shown = client.manager.request("GET", uri).headers["Allow"]
        refused = client.manager.request("PUT", uri, json={})
        told = (shown, refused.status_code, refused.headers.get("Allow"))
        suite.equal(told, (expected, 405, expected), f"what may be done at {uri} is told as it is")
    deleted = client.manager.request("DELETE", physical)
    suite.equal(deleted.status_code, 405, "a host is not deleted")
    again = client.compose("farm", [host, one], **{"Idempotency-Key": "farm-1"})
    suite.check(again.status_code in (201, 204), "the same request under its key has one effect", again.text)
    taken = client.compose("thief", [host, one])
    suite.equal((taken.status_code, messages(taken)), (409, ["ResourceInUse"]), "what is taken is refused")
    suite.check(system["Id"] in taken.text, "and who has it is named", taken.text)

    stale = client.act(system, "AddResourceBlock", two, ComputerSystemETag='"0"')
    suite.equal(stale.status_code, 412, "a system that has changed is not changed by who has not seen it")
    added = client.act(system, "AddResourceBlock", two, ComputerSystemETag=system["@odata.etag"])
    suite.equal(added.status_code, 204, "a block is added")
    suite.equal([told.status_code for told in client.monitors(1)], [204], "and so does that of this task")
    suite.equal(client.created(1), [[]], "which has made no system")
    over = client.manager.request("GET", client.tasks(1)[0]["@odata.id"])
    suite.equal(over.headers["Allow"], "GET, HEAD", "a task that is over can't be deleted, and Allow says so")
    suite.equal(blocks_of(client.get(place)), sorted([host, one, two]), "then it is part of the system")
    for times in ("once", "once more under its key"):
        removed = client.act(system, "RemoveResourceBlock", one, {"Idempotency-Key": "farm-2"})
        suite.equal(removed.status_code, 204, f"a block is removed: {times}")
    suite.equal(blocks_of(client.get(place)), sorted([host, two]), "then it is not")
    suite.check(one in client.free("Processor"), "but free", client.get(one))
    last = client.act(system, "RemoveResourceBlock", two)
    suite.equal((last.status_code, blocks_of(client.get(place))), (409, sorted([host, two])), "its last GPUs stay with it")
    strange = client.act(system, "RemoveResourceBlock", one)
    suite.equal(strange.status_code, 409, "what is not part of it can't be removed")
    gone = client.manager.request("DELETE", place, headers={"If-Match": '"0"'})
    suite.equal(gone.status_code, 412, "nor is a system deleted that has changed since")
    gone = client.manager.request("DELETE", place)
    suite.equal(gone.status_code, 204, "a system is deleted")
    suite.equal([told.status_code for told in client.monitors(1)], [204], "and so does that of this task")
    nobody = client.manager.request("GET", "/redfish/v1/TaskService/TaskMonitors/nobody")
    suite.equal(nobody.status_code, 404, "what was never a task has no monitor")
    suite.equal(client.manager.request("GET", place).status_code, 404, "then it is gone")
    suite.check(two in client.free("Processor"), "and its blocks are free", client.get(two))


def exchange_without_waiting(suite, client):
    """A PATCH that replaces blocks is one task, however long it takes."""
    host, (one, two, three, *_) = client.free("ComputerSystem")[0], client.free("Processor")
    place = client.compose("exchanged", [host, one, two]).headers["Location"]
    body = {"Links": {"ResourceBlocks": [{"@odata.id": block} for block in (host, two, three)]}}
    prefer = {"Prefer": "respond-async"}
    answer = client.manager.request("PATCH", place, json=body, headers=prefer)
    if suite.equal(answer.status_code, 202, f"blocks are exchanged as a task: {answer.text}"):
        suite.equal(client.came_of(answer).status_code, 204, "which ends well")
        suite.equal(blocks_of(client.get(place)), sorted([host, two, three]), "and then it has what was wanted")
        suite.check(one in client.free("Processor"), "and what it had before is free", client.get(one))
    suite.equal(client.manager.request("DELETE", place).status_code, 204, "it is deleted")


def cancel(suite, client):
    """What is cancelled has no answer, and is no error of the service."""
    host, blocks = client.free("ComputerSystem")[0], client.free("Processor")[:4]
    begun = client.compose("never", [host, *blocks], **{"Prefer": "respond-async"})
    if not suite.equal(begun.status_code, 202, f"a system is composed as a task: {begun.text}"):
        return
    stopped = client.manager.request("DELETE", begun.headers["Location"])
    told = client.came_of(begun)
    if stopped.status_code == 405:
        suite.equal(told.status_code, 201, "it was done by then")
        client.manager.request("DELETE", told.headers["Location"])
        return
    suite.check(stopped.status_code in (202, 204), "it is cancelled", stopped.text)
    if stopped.status_code == 202:
        suite.equal(stopped.headers.get("Location"), begun.headers["Location"], "it is said where to look")
        suite.check("Retry-After" in stopped.headers, "and when", stopped.headers)
    suite.equal((told.status_code, messages(told)), (410, ["ResourceMissingAtURI"]), "then it has no answer")
    suite.check(set(blocks) <= set(client.free("Processor")), "and everything is as it was", blocks)


def race_for_one_block(suite, client):
    host, block = client.free("ComputerSystem")[0], client.free("Processor")[0]
    answers = []
    racers = [
        threading.Thread(target=lambda name=name: answers.append(client.compose(name, [host, block])))
        for name in ("left", "right")
    ]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    answers.sort(key=lambda answer: answer.status_code)
    statuses = [answer.status_code for answer in answers]
    if suite.equal(statuses, [201, 409], "of two that race for a block one has it"):
        holders = [link for link in links(client.get(block)["Links"]) if link.startswith(SYSTEMS)]
        suite.equal(holders, [answers[0].headers["Location"]], "and it is the one that was told so")
        winner = answers[0].json()["Id"]
        named = winner in answers[1].text or "of admin has it in hand" in answers[1].text
        suite.check(named, "and the other is told who has it", answers[1].text)
        client.manager.request("DELETE", answers[0].headers["Location"])


def race_with_one_tag(suite, client):
    """Two who saw the same system add different blocks to it: one of them has not seen what it changes."""
    host, (first, *others) = client.free("ComputerSystem")[0], client.free("Processor")[:3]
    place = client.compose("seen", [host, first]).headers["Location"]
    system = client.get(place)
    add = lambda block: client.act(system, "AddResourceBlock", block, ComputerSystemETag=system["@odata.etag"])
    with ThreadPoolExecutor() as pool:
        answers = list(pool.map(add, others))
    statuses = [answer.status_code for answer in answers]
    suite.equal(sorted(statuses), [204, 412], "of two who saw the same system one changes it")
    has = [block for block in others if block in blocks_of(client.get(place))]
    done = [block for block, status in zip(others, statuses) if status == 204]
    suite.equal(has, done, "and it has the block of that one")
    suite.equal(client.manager.request("DELETE", place).status_code, 204, "it is deleted")


def compose_by_wish(suite, client):
    def wish(name, **wanted):
        return client.manager.request("POST", SYSTEMS, json={"Name": name, **wanted})

    two = {"Members": [{"@Redfish.RequestedCount": 2, "ProcessorType": "GPU"}]}
    made = wish("two", Processors=two)
    if suite.check(made.status_code == 201, "so many GPUs are composed", made.text):
        suite.equal(made.json()["ProcessorSummary"]["Count"], 2, "as many as were wanted")
    model = wish("eight", Oem={"Poolwright": {"Model": "8B", "Task": "infer", "Context": 4096}})
    suite.equal(model.status_code, 201, "what a model needs is composed")
    suite.equal([answer.json()["Name"] for answer in (made, model)], ["two", "eight"], "and called what it is to be called")
    place = made.headers["Location"]
    suite.check("Actions" not in made.json(), "its GPUs are the planner's to choose", made.text)
    answer = client.manager.request("GET", place)
    suite.equal(answer.headers["Allow"], "GET, HEAD, DELETE", "so it is read and deleted alone")
    links = {"ResourceBlocks": made.json()["Links"]["ResourceBlocks"][:2]}
    patched = client.manager.request("PATCH", place, json={"Links": links})
    suite.equal((patched.status_code, patched.headers["Allow"]), (405, "GET, HEAD, DELETE"), "nor is it changed")
    for answer in (made, model):
        gone = client.manager.request("DELETE", answer.headers["Location"])
        suite.equal(gone.status_code, 204, "and is deleted")
    many = {"Members": [{"@Redfish.RequestedCount": 2000, "ProcessorType": "GPU"}]}
    for status, name, wanted in (
        (409, "more than there are", {"Processors": many}),
        (400, "none at all", {"Processors": {"Members": [{"@Redfish.RequestedCount": 0}]}}),
        (400, "nothing", {}),
        (400, "a property that is not there", {"Colour": "red", "Processors": two}),
        (400, "what can't be chosen", {"BiosVersion": "1.0", "Processors": two}),
        (400, "a task that is none", {"Oem": {"Poolwright": {"Model": "8B", "Task": "dance"}}}),
        (400, "a block that is none", {"Links": {"ResourceBlocks": [{"@odata.id": "/redfish/v1/Chassis"}]}}),
        (400, "GPUs without a host", {"Links": {"ResourceBlocks": [{"@odata.id": client.free("Processor")[0]}]}}),
    ):
        refused = wish("refused", **wanted)
        suite.equal(refused.status_code, status, f"refused: {name}: {refused.text}")


def read_with_python_redfish(suite, manager):
    """DMTF's client logs in, follows links, and logs out."""
    client = redfish.redfish_client(base_url=manager.url, cafile=str(manager.authority_file))
    client.login(username=USER, password=manager.password, auth="session")
    try:
        root = client.root
        systems = client.get(root.Systems["@odata.id"]).dict
        suite.check(systems["Members@odata.count"] > 0, "python-redfish reads the systems", systems)
        first = client.get(systems["Members"][0]["@odata.id"]).dict
        suite.check(first["Id"], "and one of them", first)
        compose_with_python_redfish(suite, client, Client(manager))
    finally:
        client.logout()


def compose_with_python_redfish(suite, client, pool):
    blocks = [pool.free(kind)[0] for kind in ("ComputerSystem", "Processor")]
    wanted = {"Name": "by DMTF's client", "Links": {"ResourceBlocks": [{"@odata.id": block} for block in blocks]}}
    made = client.post(SYSTEMS, body=wanted)
    if not suite.check(made.status == 201, "python-redfish composes a system", made.text):
        return
    place = made.getheader("Location")
    suite.equal(blocks_of(client.get(place).dict), sorted(blocks), "of what it named")
    suite.equal(client.delete(place).status, 204, "and decomposes it")
    suite.check(blocks[1] in pool.free("Processor"), "then its GPU is free")


def judge_all(suite, manager):
    client = Client(manager)
    read_with_python_redfish(suite, manager)
    compose_of_blocks(suite, client)
    exchange_without_waiting(suite, client)
    cancel(suite, client)
    race_for_one_block(suite, client)
    race_with_one_tag(suite, client)
    compose_by_wish(suite, client)
