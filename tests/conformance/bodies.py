"""Request bodies, good and bad, against an emulated rack.

Each case of cases.json says what is sent where, and whether DMTF's schema allows the body. Where the schemas
are present, they must agree with the case. A body that is forbidden must be refused with 400 and change
nothing; one that is allowed may be refused for its meaning alone, not for its form; one that also makes sense
(`accepted`) must be done.

A case whose call no service here offers says why it is `absent`; then it is refused as a method that is not
allowed, and the report names it as not applicable. Every other case must find a place.
"""

import json
import time
from pathlib import Path

from rack import links

CASES = Path(__file__).with_name("cases.json")

# Refusals of form, in the Base registry (DSP0268): an allowed body must not meet them.
FORM = {
    "ActionParameterMissing",
    "ActionParameterNotSupported",
    "ActionParameterUnknown",
    "ActionParameterValueFormatError",
    "ActionParameterValueNotInList",
    "ActionParameterValueTypeError",
    "CreateFailedMissingReqProperties",
    "MalformedJSON",
    "PropertyMissing",
    "PropertyNotWritable",
    "PropertyUnknown",
    "PropertyValueFormatError",
    "PropertyValueNotInList",
    "PropertyValueTypeError",
    "UnrecognizedRequestBody",
}


def cases(style):
    return [case for case in json.loads(CASES.read_text()) if style in case["styles"]]


class Service:
    """One endpoint with what it holds: finds where a case is sent, and what its placeholders stand for."""

    def __init__(self, endpoint):
        self.endpoint = endpoint
        self.look()

    def look(self):
        self.resources = self.endpoint.resources()

    def of_type(self, kind):
        return [
            uri
            for uri, document in sorted(self.resources.items())
            if document.get("@odata.type", "").lstrip("#").split(".")[0] == kind
        ]

    def targets(self, case):
        """URIs that a case can be sent to: resources of a type, or actions of a name."""
        if "action" in case:
            actions = [document.get("Actions", {}).get(case["action"]) for document in self.resources.values()]
            return [action["target"] for action in actions if action and "target" in action]
        wanted = case.get("where", {}).items()
        found = [uri for uri in self.of_type(case["on"]) if all(self.resources[uri].get(k) == v for k, v in wanted)]
        # Not every service takes every method: it says so, and then there is no place for the case.
        return [uri for uri in found if case["method"] in self.allowed(uri)]

    def allowed(self, uri):
        """The methods that a resource says it takes."""
        return self.endpoint.request("GET", uri).headers.get("allow", "GET, PATCH, POST, DELETE")

    def endpoints_with_role(self, role):
        for uri in self.of_type("Endpoint"):
            entities = self.resources[uri].get("ConnectedEntities", [])
            if any(entity.get("EntityRole") in (role, "Both") for entity in entities):
                yield uri

    def free_blocks(self, kind):
        for uri in self.of_type("ResourceBlock"):
            block = self.resources[uri]
            if kind in block["ResourceBlockType"] and block["CompositionStatus"]["CompositionState"] == "Unused":
                yield uri

    def free_targets(self):
        held = set()
        for uri in self.of_type("Zone") + self.of_type("Connection"):
            held |= set(links(self.resources[uri]["Links"]))
        return (uri for uri in self.endpoints_with_role("Target") if uri not in held)

    def stand_in(self, word):
        """What a placeholder such as `$FreeTarget` or `$ResourceBlock` stands for here."""
        special = {
            "$Initiator": lambda: self.endpoints_with_role("Initiator"),
            "$Target": lambda: self.endpoints_with_role("Target"),
            "$FreeTarget": self.free_targets,
            "$FreeCompute": lambda: self.free_blocks("Compute"),
            "$FreeGpu": lambda: self.free_blocks("Processor"),
        }
        found = special.get(word, lambda: iter(self.of_type(word[1:])))()
        first = next(iter(found), None)
        if first is None:
            raise RuntimeError(f"{self.endpoint.name} has nothing for {word}")
        return first

    def fill(self, value):
        if isinstance(value, str):
            return self.stand_in(value) if value.startswith("$") else value
        if isinstance(value, dict):
            return {key: self.fill(inner) for key, inner in value.items()}
        return [self.fill(inner) for inner in value] if isinstance(value, list) else value


def schema_agrees(suite, case, schemas):
    """The case against the schema: is what we call forbidden forbidden by DMTF, and the other way round?"""
    if "raw" in case:
        return
    resource, definition = case["schema"].split(".")
    where = "action" if "action" in case else {"POST": "create", "PATCH": "update"}[case["method"]]
    objections = schemas.objections(where, resource, definition, case["body"])
    # A case may say why it stands although the schema has it otherwise: a call that a vendor publishes.
    expected = case["allowed"] != ("although" in case)
    suite.equal(not objections, expected, f"DMTF's schema agrees on: {case['name']}")


def message_ids(answer):
    """The MessageIds of an error body without registry and version; empty when it is no Redfish error."""
    try:
        infos = answer.json()["error"]["@Message.ExtendedInfo"]
        return {info["MessageId"].rpartition(".")[2] for info in infos}
    except (ValueError, KeyError, TypeError):
        return set()


def settled(service, uri):
    """What a resource says once what was asked of it before has come true."""
    deadline = time.monotonic() + 5
    last = service.endpoint.request("GET", uri)
    while time.monotonic() < deadline:
        time.sleep(0.1)
        now = service.endpoint.request("GET", uri)
        if now.text == last.text:
            break
        last = now
    return last


def body_of(service, case, current):
    """The text to send: placeholders filled, and before a list that is replaced whole, what is in it now."""
    if "raw" in case:
        return case["raw"]
    body = service.fill(case["body"])
    if "keep" in case:
        outer, name = case["keep"]
        body[outer][name] = current[outer][name] + body[outer][name]
    return json.dumps(body)


def judge(suite, service, case, target):
    """Sends one case and judges the answer."""
    headers = {"content-type": "application/json"}
    watched = target.partition("/Actions/")[0]
    before = settled(service, watched)
    if case.get("accepted"):
        service.look()  # what was free may be held by now
    body = body_of(service, case, before.json())
    # Of what a body replaces a part of; an action has no content that it could match.
    if case["method"] == "PATCH" and "ETag" in before.headers:
        headers["if-match"] = before.headers["ETag"]
    answer = service.endpoint.request(case["method"], target, data=body, headers=headers)
    ids, what = message_ids(answer), f"{case['name']} ({case['method']} {target})"
    said = f"{answer.status_code} {sorted(ids)} {answer.text[:300]}"
    if case["allowed"]:
        accepted = answer.status_code in (200, 201, 202, 204)
        refused_for_its_meaning = 400 <= answer.status_code < 500 and ids and not ids & FORM
        if case.get("accepted"):
            refused_for_its_meaning = False
        suite.check(accepted or refused_for_its_meaning, f"allowed: {what}", said)
    else:
        suite.check(answer.status_code == 400, f"forbidden: {what}", said)
        suite.check(ids & FORM, f"the refusal says what is wrong with the form: {what}", said)
        after = service.endpoint.request("GET", watched)
        suite.equal(after.json(), before.json(), f"nothing changed: {what}")
    return {"case": case["name"], "status": answer.status_code, "messages": sorted(ids)}


def judge_absent(suite, services, case):
    """A call that no service says it takes: sent all the same, it is refused for that."""
    for service in services:
        for uri in service.of_type(case["on"]) if "on" in case else ():
            answer = service.endpoint.request(case["method"], uri, json={})
            suite.equal(answer.status_code, 405, f"not offered, and refused: {case['name']} ({uri})")


def judge_all(suite, style, endpoints, schemas):
    """Every case of a style, each at the first endpoint that has a place for it. Returns what was answered, and
    which cases do not apply, with the reason."""
    services = [Service(endpoint) for endpoint in endpoints]
    answers, not_applicable = [], {}
    for case in cases(style):
        with suite.case(case["name"]):
            if schemas:
                schema_agrees(suite, case, schemas)
            places = ((service, target) for service in services for target in service.targets(case))
            place = next(places, None)
            if place:
                answers.append(judge(suite, place[0], case, place[1]))
            elif "absent" in case:
                judge_absent(suite, services, case)
                not_applicable[case["name"]] = case["absent"]
                suite.note(f"{style}: not applicable: {case['name']}: {case['absent']}")
            else:
                suite.check(False, f"{style}: {case['name']}: no place in the rack for it")
    judged = {answer["case"] for answer in answers} | set(not_applicable)
    missing = [case["name"] for case in cases(style) if case["name"] not in judged]
    suite.check(not missing, f"{style}: every case was run, or does not apply", missing)
    return {"run": len(answers), "not applicable": not_applicable, "answers": answers}
