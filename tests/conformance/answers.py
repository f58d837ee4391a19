"""Every answer of `/api/v1` is what the OpenAPI document says of it: all that is read, and what changes are answered with.
Refusals are judged, too; which operations were never answered otherwise is told."""

import jsonschema
import referencing
from referencing.jsonschema import DRAFT202012
from suite import wait_until

HERE = "urn:api"
# Refused here: nobody is waited for, nothing is in doubt or known for an hour, no agent asks, there is no burn-in, and
# these endpoints have neither pins nor a password that is kept.
ONLY_REFUSED = {
    "POST /operations/{id}/cancel",
    "POST /operations/{id}/resolve",
    "GET /forecast",
    "POST /gpus/{id}/return",
    "POST /agents",
    "GET /agents/{id}",
    "POST /agents/{id}/revoke",
    "POST /agents/{id}/renew",
    "POST /endpoints",
    "POST /endpoints/{id}/accept",
    "POST /endpoints/{id}/pins",
    "POST /endpoints/{id}/rotate-password",
    "POST /endpoints/{id}/credentials",
}


class Answers:
    """Asks the manager, and judges what it answers."""

    def __init__(self, suite, manager):
        self.suite, self.manager = suite, manager
        self.document = manager.request("GET", "/api/v1/openapi.json").json()
        whole = referencing.Resource(contents=self.document, specification=DRAFT202012)
        self.registry = referencing.Registry().with_resource(HERE, whole)
        self.asked, self.answered = set(), set()

    def ask(self, method, path, body=None, of=None, query=""):
        """`of` is what stands for `{id}`. Returns what was answered."""
        uri = "/api/v1" + path.replace("{id}", of or "{id}") + query
        answer = self.manager.request(method, uri, json=body)
        operation = f"{method} {path}"
        self.asked.add(operation)
        if answer.status_code < 300:
            self.answered.add(operation)
        found = answer.json() if answer.content else None
        self.suite.equal(self.objections(method, path, answer.status_code, found), [], f"answered as told: {method} {uri}")
        return found

    def objections(self, method, path, status, found):
        operation = self.document["paths"][path][method.lower()]
        if str(status) not in operation["responses"]:
            return [f"{status} is not told: {found}"]
        response = operation["responses"][str(status)]
        if "$ref" in response:
            at = response["$ref"]
        else:
            at = f"#/paths/{path.replace('/', '~1')}/{method.lower()}/responses/{status}"
        if "content" not in response and "$ref" not in response:
            return [] if found is None else [f"a body where none is told: {found}"]
        schema = {"$ref": f"{HERE}{at}/content/application~1json/schema"}
        validator = jsonschema.Draft202012Validator(schema, registry=self.registry)
        errors = sorted(validator.iter_errors(found), key=lambda error: list(map(str, error.path)))
        return [f"{'/'.join(map(str, error.path))}: {error.message}"[:300] for error in errors[:5]]

    def change(self, path, body, of=None):
        """A change, until its operation is over."""
        begun = self.ask("POST", path, body, of)
        operation = (begun.get("operation") or {}).get("id")
        return self.ask("GET", "/operations/{id}", of=operation, query="?wait=60") if operation else None


def changes(answers):
    answers.change("/compose", {"demand": {"id": "one", "gpus": 1}, "how": {"dry_run": True}})
    composed = answers.change("/compose", {"demand": {"id": "one", "gpus": 1, "tenant": "a"}})
    answers.ask("POST", "/compose", {"demand": {"id": "many", "gpus": 4000}})
    answers.ask("POST", "/compose", {"demand": {"id": "model", "model": "llama-3.1-8b"}, "how": {"dry_run": True}})
    answers.ask("GET", "/compositions/{id}", of=answers.ask("GET", "/compositions")[0]["id"])
    answers.ask("POST", "/operations/{id}/cancel", {}, of=composed["id"])
    answers.ask("POST", "/operations/{id}/resolve", {"resolution": "accept", "reason": "a test"}, of=composed["id"])
    answers.change("/operations/{id}/undo", {}, of=composed["id"])
    free = [gpu["id"] for gpu in answers.ask("GET", "/gpus") if gpu["composable"]]
    hosts = [host["id"] for host in answers.ask("GET", "/hosts")]
    answers.change("/attach", {"gpus": free[:1], "host": hosts[0]})
    answers.change("/move", {"gpus": free[:1], "host": hosts[-1]})
    answers.change("/detach", {"gpus": free[:1]})
    answers.ask("GET", "/gpus/{id}", of=free[0])
    answers.ask("GET", "/hosts/{id}", of=hosts[0])
    return free


def hosts(answers):
    """Of hosts that hold nothing."""
    stays, goes = [host["id"] for host in answers.ask("GET", "/hosts")][-2:]
    answers.ask("POST", "/hosts/{id}/close", {"reason": "new fans"}, of=goes)
    answers.ask("GET", "/hosts/{id}", of=goes)
    answers.ask("POST", "/hosts/{id}/open", of=goes)
    for ends in ("stays", "moved"):
        answers.ask("POST", "/hosts/{id}/move", {"to": "rack 7"}, of=goes)
        answers.ask("POST", f"/hosts/{{id}}/{ends}", of=goes)
    answers.ask("POST", "/hosts/{id}/retire", {"why": "its lease ends"}, of=goes)
    answers.ask("POST", "/hosts/{id}/reinstate", of=goes)
    answers.ask("POST", "/hosts/{id}/replaced", {"by": stays}, of=goes)
    answers.ask("GET", "/retired-hosts")
    answers.ask("GET", "/hosts/{id}/history", of=goes)
    answers.ask("POST", "/hosts/{id}/reinstate", of=goes)


def simulations(answers):
    trace = "job_id,tenant,submit_s,duration_s,gpus\none,a,0,600,2\ntwo,b,60,60,1\n"
    answers.ask("POST", "/simulations", {"policies": ["fifo", "poolwright"], "trace": trace, "seeds": [1]})
    answers.ask("POST", "/simulations", {"policies": ["none"], "trace": trace})


def sizes(answers):
    training = {"task": "full", "context": 4096}
    answers.ask("POST", "/size", {"model": "70B", "tokens": "1T"})
    answers.ask("POST", "/size", {"model": "8B", "job": training, "set": {"offload": "optimizer"}, "gpus": 8})
    answers.ask("POST", "/size", {"model": "400B", "job": training, "kinds": ["t4-16gb"], "host_memory": 1 << 30})
    answers.ask("POST", "/size", {"model": "8B", "pool": True})


def wishes(answers):
    answers.ask("POST", "/demands", {"id": "job", "gpus": 1, "queue": {"runs_for": "1h"}})
    # What it is about to change no plan can be made of, and only what runs can be done.
    states = lambda: [job["state"] for job in answers.ask("GET", "/queue")["running"]]
    wait_until(lambda: states() == ["runs"], 60, "the job runs")
    answers.ask("POST", "/demands", {"id": "two", "gpus": 1})
    answers.ask("POST", "/demands", {"id": "wide", "gpus": 4000, "queue": {"runs_for": "1h"}})
    answers.ask("POST", "/demands", {"id": "later", "gpus": 1})
    answers.ask("DELETE", "/demands/{id}", of="later")
    for name in ("two", "job", "wide"):
        answers.ask("GET", "/demands/{id}", of=name)
        answers.ask("GET", "/demands/{id}/why", of=name)
    answers.change("/apply", {"plan": answers.ask("POST", "/plan")})
    answers.ask("GET", "/demands")
    # Far ahead: one that is open at this hour would begin by itself, and could not be begun by hand.
    window = {"weekly": ["daily 01:00-05:00"], "zone": "Europe/Berlin", "first_day": "2099-12-01"}
    night = {"id": "night", "window": window, "demands": [{"id": "batch", "gpus": 1}]}
    ladder = {"id": "lent", "window": window, "suspends": ["two"], "reclaim_s": 600, "back_by_close": True}
    what = {"demands": [{"id": "two", "gpus": 2}], "schedules": [night]}
    answers.ask("POST", "/declare", {"what": what, "dry_run": True})
    for schedule in (night, ladder):
        answers.ask("POST", "/schedules", schedule)
    answers.ask("POST", "/schedules/{id}/run", {"for_s": 600}, of="night")
    for action in ("pause", "resume"):
        answers.ask("POST", f"/schedules/{{id}}/{action}", of="night")
    answers.ask("GET", "/schedules/{id}", of="night")
    answers.ask("GET", "/plan-ahead")
    answers.ask("GET", "/plan-ahead/problem")
    answers.ask("DELETE", "/schedules/{id}", of="lent")
    answers.ask("POST", "/demands/{id}/done", of="job")
    answers.change("/release", {"what": {"demand": "two"}})


def failures(answers, gpu, other):
    for lit in (True, False):
        answers.ask("POST", "/gpus/{id}/locate", {"lit": lit}, of=gpu)
    answers.ask("POST", "/gpus/{id}/quarantine", {"cause": {"xid": 79}, "says": "fell off the bus"}, of=gpu)
    answers.ask("POST", "/gpus/{id}/quarantine", {"cause": "reported"}, of=other)
    answers.ask("GET", "/quarantine")
    answers.ask("POST", "/gpus/{id}/return", {"limit_s": 60}, of=gpu)
    answers.ask("POST", "/gpus/{id}/replaced", {"by": gpu}, of=other)
    answers.ask("GET", "/gpus/{id}/history", of=gpu)


def people(answers):
    answers.ask("POST", "/tenants/{id}", {"guaranteed": 1, "weight": 2}, of="a")
    answers.ask("GET", "/tenants/{id}", of="a")
    answers.ask("DELETE", "/tenants/{id}", of="a")
    account = {"name": "reader", "role": "ReadOnly", "password": "a password for a reader"}
    answers.ask("POST", "/accounts", account)
    answers.ask("POST", "/accounts/{id}", {"enabled": False}, of="reader")
    answers.ask("GET", "/accounts/{id}", of="reader")
    answers.ask("DELETE", "/accounts/{id}", of="reader")
    answers.ask("POST", "/limits", {"per_plan": 8})
    switch = answers.ask("GET", "/uplinks")[0]["id"].replace("/", "%2F")
    answers.ask("POST", "/uplinks/{id}", {"gpus": 4}, of=switch)
    answers.ask("GET", "/uplinks")
    answers.ask("DELETE", "/uplinks/{id}", of=switch)
    for action in ("/pause", "/resume"):
        answers.ask("POST", action, {"what": "automation"})
    answers.ask("POST", "/agent-tokens", {"seconds": 60})
    answers.ask("DELETE", "/agent-tokens/{id}", of=answers.ask("GET", "/agent-tokens")[0]["id"])
    answers.ask("POST", "/agents", {"token": "none", "uuid": "none", "address": "127.0.0.1:1", "csr": "none"})
    for method, action in (("GET", ""), ("POST", "/revoke"), ("POST", "/renew")):
        answers.ask(method, "/agents/{id}" + action, of="nobody")


def endpoints(answers):
    known = answers.ask("GET", "/endpoints")[0]["id"]
    answers.ask("GET", "/endpoints/{id}", of=known)
    answers.ask("POST", "/endpoints/{id}/test", of=known)
    answers.ask("POST", "/endpoints/{id}/accept", {"dry_run": True}, of=known)
    answers.ask("POST", "/endpoints/{id}/repair", {"policy": "report"}, of=known)
    answers.ask("POST", "/endpoints/{id}/pins", {"add": "00" * 32}, of=known)
    answers.ask("POST", "/endpoints/{id}/credentials", {"username": "admin", "password": "wrong"}, of="nobody")
    answers.ask("POST", "/endpoints/{id}/rotate-password", of=known)
    answers.change("/endpoints/{id}/adopt", {}, of=known)
    answers.ask("POST", "/endpoints", {"id": "nobody", "url": "https://127.0.0.1:1", "trust": "system"})


def the_rest(answers):
    """What is read without an id, and what of the fabrics has one; an endpoint is removed at last."""
    answers.ask("POST", "/discover")
    for path, methods in answers.document["paths"].items():
        if "get" in methods and "{" not in path:
            answers.ask("GET", path)
    answers.ask("GET", "/forecast", query="?by_kind=true&ahead=1")
    answers.ask("GET", "/fabrics/{id}", of=answers.ask("GET", "/fabrics")[0]["id"])
    answers.ask("DELETE", "/endpoints/{id}", of=answers.ask("GET", "/endpoints")[-1]["id"])


def judge_all(suite, manager):
    answers = Answers(suite, manager)
    free = changes(answers)
    hosts(answers)
    sizes(answers)
    simulations(answers)
    wishes(answers)
    failures(answers, free[-1], free[-2])
    people(answers)
    endpoints(answers)
    the_rest(answers)
    told = {f"{method.upper()} {path}" for path, methods in answers.document["paths"].items() for method in methods}
    suite.equal(sorted(told - answers.asked), [], "every operation of the document was asked")
    refused = answers.asked - answers.answered
    suite.equal(sorted(refused - ONLY_REFUSED), [], "operations that only refused, beside those that must")
