"""The Compose action, as a client that knows DMTF's schemas uses it: preview, reserve, apply."""

from composing import SYSTEMS, Client, blocks_of, messages

SERVICE = "/redfish/v1/CompositionService"
RESERVATIONS = f"{SERVICE}/CompositionReservations"


def stanza(name, blocks):
    links = {"ResourceBlocks": [{"@odata.id": block} for block in blocks]}
    return {"StanzaType": "ComposeSystem", "StanzaId": name, "Request": {"Name": name, "Links": links}}


class Composer(Client):
    def act(self, kind, stanzas=(), key=None, **more):
        target = self.get(SERVICE)["Actions"]["#CompositionService.Compose"]["target"]
        body = {"RequestFormat": "Manifest", "RequestType": kind, **more}
        if stanzas:
            body["Manifest"] = {"Expand": "None", "Stanzas": list(stanzas)}
        headers = {"Idempotency-Key": key} if key else {}
        return self.manager.request("POST", target, json=body, headers=headers)


def reserved(client):
    return [member["@odata.id"] for member in client.get(RESERVATIONS)["Members"]]


def responses(answer):
    return [one.get("Response") for one in answer.json()["Manifest"]["Stanzas"]]


def a_preview_changes_nothing(suite, client):
    host, block = client.free("ComputerSystem")[0], client.free("Processor")[0]
    seen = client.act("Preview", [stanza("seen", [host, block])])
    suite.equal(seen.status_code, 200, "a manifest is previewed")
    suite.equal(blocks_of(responses(seen)[0]), sorted([host, block]), "it would be composed of what was named")
    twice = client.act("Preview", [stanza("a", [host, block]), stanza("b", [host, block])])
    suite.equal(twice.status_code, 409, "two systems of one block are refused")
    suite.check("given to b: a of the same request" in twice.text, "and the other one is named", twice.text)
    wished = {"StanzaType": "ComposeSystem", "StanzaId": "two", "Request": {
        "Name": "two", "Processors": {"Members": [{"@Redfish.RequestedCount": 2, "ProcessorType": "GPU"}]}}}
    fits = client.act("Preview", [wished])
    suite.equal(len(blocks_of(responses(fits)[0])), 3, "what is wished for is previewed as a host and its GPUs")
    suite.check(block in client.free("Processor"), "nothing is different", client.get(block))
    suite.equal(reserved(client), [], "and nothing is reserved")


def a_reservation_binds(suite, client):
    host, (one, two, *_) = client.free("ComputerSystem")[0], client.free("Processor")
    kept = client.act("PreviewReserve", [stanza("first", [host, one]), stanza("second", [host, two])])
    if not suite.check(kept.status_code == 200, "a manifest is reserved", kept.text):
        return
    name = kept.json()["ReservationId"]
    place = f"{RESERVATIONS}/{name}"
    suite.equal(reserved(client), [place], "the reservation is a resource")
    listed = sorted(block["@odata.id"] for block in client.get(place)["ReservedResourceBlocks"])
    suite.equal(listed, sorted([one, two]), "with its blocks")
    suite.check(client.get(one)["CompositionStatus"]["Reserved"], "which say that they are reserved")
    thief = client.compose("thief", [host, one])
    suite.equal((thief.status_code, messages(thief)), (409, ["ResourceInUse"]), "nobody else gets them")
    suite.check("reserved for admin" in thief.text, "and who has them is named", thief.text)
    asked = [stanza("first", [host, one]), stanza("second", [host, two])]
    suite.equal(client.get(place)["Manifest"]["Stanzas"], asked, "it says what it was made for")
    other = client.act("Apply", [asked[0], stanza("second", [host, one])], ReservationId=name)
    suite.equal((other.status_code, messages(other)), (400, ["ActionParameterValueConflict"]), "nothing else is applied")
    again = client.act("PreviewReserve", [stanza("again", [host, two])])
    suite.equal(again.status_code, 409, "nor are they reserved twice")

    applied = client.act("Apply", ReservationId=name, key="apply-1")
    suite.equal(applied.status_code, 200, "a reservation is applied")
    systems = [client.get(one["@odata.id"]) for one in responses(applied)]
    suite.equal([blocks_of(system) for system in systems], [sorted([host, one]), sorted([host, two])], "as it was kept")
    suite.equal(reserved(client), [], "then it is over")
    suite.equal(client.act("Apply", ReservationId=name).status_code, 404, "and is not applied twice")
    again = client.act("Apply", ReservationId=name, key="apply-1")
    suite.equal(again.status_code, 200, "but for the same request under its key, which is answered again")
    told = [one["@odata.id"] for one in responses(again)]
    suite.equal(told, [system["@odata.id"] for system in systems], "with the systems that there are")
    gone = [{"StanzaType": "DecomposeSystem", "StanzaId": system["Id"], "Request": {"@odata.id": system["@odata.id"]}}
            for system in systems]
    suite.equal(client.act("Apply", gone, key="apply-2").status_code, 200, "a manifest decomposes")
    again = client.act("Apply", gone, key="apply-2")
    suite.equal((again.status_code, responses(again)), (200, [{}, {}]), "once, by its key")
    suite.equal(client.act("Apply", gone, key="apply-3").status_code, 404, "under another they are not there")
    suite.check({one, two} <= set(client.free("Processor")), "then their blocks are free")

    a_stopped_one_goes_on(suite, client, host, one, two)
    kept = client.act("PreviewReserve", [stanza("third", [host, one])]).json()["ReservationId"]
    suite.equal(client.manager.request("DELETE", f"{RESERVATIONS}/{kept}").status_code, 204, "a reservation is ended")
    suite.check(not client.get(one)["CompositionStatus"]["Reserved"], "and its blocks are anybody's")


def decomposed(name, place):
    return {"StanzaType": "DecomposeSystem", "StanzaId": name, "Request": {"@odata.id": place}}


def a_stopped_one_goes_on(suite, client, host, one, two):
    """What was decomposed of a reserved manifest before it was stopped is gone when it is applied again."""
    systems = [client.compose(name, [host, block]).headers["Location"] for name, block in (("a", one), ("b", two))]
    only = client.act("PreviewReserve", [decomposed("a", systems[0])])
    suite.equal((only.status_code, messages(only)), (400, ["ActionParameterValueConflict"]), "nothing is reserved of nothing")
    third = next(block for block in client.free("Processor") if block not in (one, two))
    nobody = client.act("PreviewReserve", [stanza("new", [host, third]), decomposed("x", f"{SYSTEMS}/nobody")])
    suite.equal((nobody.status_code, reserved(client)), (404, []), "nor where a system is not there")
    asked = [stanza("new", [host, third]), *(decomposed(name, at) for name, at in zip("ab", systems))]
    kept = client.act("PreviewReserve", asked).json()["ReservationId"]
    suite.equal(client.manager.request("DELETE", systems[0]).status_code, 204, "the first is decomposed meanwhile")
    applied = client.act("Apply", ReservationId=kept)
    suite.equal(applied.status_code, 200, "what is gone stops nothing")
    new, gone, last = responses(applied)
    suite.check("error" in gone and "error" not in last, "the rest is done", applied.text)
    suite.check({one, two} <= set(client.free("Processor")), "and its blocks are free")
    suite.equal(client.manager.request("DELETE", new["@odata.id"]).status_code, 204, "what was reserved was composed")


def blocks_are_patched(suite, client):
    host, (one, two, *_) = client.free("ComputerSystem")[0], client.free("Processor")
    place = client.compose("patched", [host, one]).headers["Location"]

    def patch(blocks):
        links = {"ResourceBlocks": [{"@odata.id": block} for block in blocks]}
        return client.manager.request("PATCH", place, json={"Links": links})

    suite.equal(patch([host, one, two]).status_code, 204, "a block is added by PATCH of the links")
    suite.equal(patch([host, two]).status_code, 204, "and one is taken away")
    suite.equal(blocks_of(client.get(place)), sorted([host, two]), "the system is what was asked for")
    suite.equal(patch([host]).status_code, 400, "a system without a GPU is none")
    suite.equal(patch([two]).status_code, 400, "nor one without its host")
    strange = client.manager.request("PATCH", place, json={"AssetTag": "x"})
    suite.equal(strange.status_code, 400, "what can't be changed is refused")
    suite.equal(client.manager.request("DELETE", place).status_code, 204, "it is deleted")


def what_is_wrong_is_said(suite, client):
    host = client.free("ComputerSystem")[0]
    for body, why in (
        ({"RequestFormat": "Manifest", "RequestType": "Apply"}, "no manifest"),
        ({"RequestFormat": "Manifest", "RequestType": "Later", "Manifest": {}}, "an unknown type"),
        ({"RequestType": "Preview"}, "no format"),
        ({"RequestFormat": "Manifest", "RequestType": "Preview", "Manifest": {"Stanzas": [{"StanzaType": "OEM"}]}}, "OEM"),
        ({"RequestFormat": "Manifest", "RequestType": "Preview", "Manifest": {
            "Stanzas": [stanza("x", [host]), stanza("x", [host])]}}, "one name twice"),
        ({"RequestFormat": "Manifest", "RequestType": "Preview", "Manifest": {
            "Stanzas": [stanza(str(n), [host]) for n in range(99)]}}, "too many"),
    ):
        answer = client.manager.request("POST", f"{SERVICE}/Actions/CompositionService.Compose", json=body)
        suite.check(answer.status_code == 400 and "error" in answer.json(), f"refused: {why}", answer.text)
    nowhere = stanza("none", [host, f"{SERVICE}/ResourceBlocks/none"])
    too_many = {"@Redfish.RequestedCount": 4000, "ProcessorType": "GPU"}
    for stanzas, status, message in (
        ([], 400, "EmptyManifest"),
        ([{"StanzaType": "ComposeResource", "StanzaId": "one"}], 400, "UnableToProcessStanzaRequest"),
        ([nowhere], 400, "ResourceBlockNotFound"),
        ([stanza("many", []) | {"Request": {"Processors": {"Members": [too_many]}}}], 409, "NoResourceMatch"),
    ):
        answer = client.act("Preview", stanzas, Manifest={"Stanzas": []})
        told = [one["MessageId"] for one in answer.json()["error"]["@Message.ExtendedInfo"]]
        suite.equal((answer.status_code, told), (status, [f"Composition.1.1.{message}"]), "in the words of Composition")


def judge_all(suite, manager):
    client = Composer(manager)
    a_preview_changes_nothing(suite, client)
    a_reservation_binds(suite, client)
    blocks_are_patched(suite, client)
    what_is_wrong_is_said(suite, client)
    suite.check(client.get(SYSTEMS)["Members@odata.count"] > 0, "the service is well")
