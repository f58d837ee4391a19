"""Accounts, roles and privileges: what each role may do is what the served registry says."""

from concurrent.futures import ThreadPoolExecutor

from rack import Endpoint

ACCOUNTS = "/redfish/v1/AccountService/Accounts"


class Account(Endpoint):
    """The manager, as one of its accounts sees it."""

    def __init__(self, manager, name, password):
        super().__init__(name, "manager", manager.url, manager.authority_file, password)
        self.client.auth = (name, password)


def made(suite, manager, name, role, **more):
    password = f"a password for {name}"
    body = {"UserName": name, "Password": password, "RoleId": role, **more}
    answer = manager.request("POST", ACCOUNTS, json=body)
    suite.check(answer.status_code == 201, f"an account with the role {role} is made", answer.text)
    suite.check(password not in answer.text, "its password is not told")
    return Account(manager, name, password), answer.headers["Location"]


def registry_of(manager):
    """Entity → method → what of it is enough."""
    place = manager.request("GET", "/redfish/v1/AccountService").json()["PrivilegeMap"]["@odata.id"]
    mappings = manager.request("GET", place).json()["Mappings"]
    return {mapping["Entity"]: mapping["OperationMap"] for mapping in mappings}


def entity_of(resource):
    return resource["@odata.type"].lstrip("#").split(".")[0]


def may(registry, privileges, resource, method, own):
    needed = registry[entity_of(resource)][method]
    return any(
        set(one["Privilege"]) <= privileges and (own or one["Privilege"] != ["ConfigureSelf"]) for one in needed
    )


def roles_are_as_the_registry_says(suite, manager, accounts):
    registry = registry_of(manager)
    seen = manager.resources()
    compared = 0
    for account, place, role in accounts:
        described = manager.request("GET", f"/redfish/v1/AccountService/Roles/{role}").json()
        privileges = set(described["AssignedPrivileges"] + described.get("OemPrivileges", []))
        for uri, resource in seen.items():
            if "/SessionService/Sessions/" in uri or "@odata.type" not in resource:
                continue
            allow = manager.request("GET", uri).headers.get("Allow", "GET").split(", ")
            for method in allow:
                allowed = may(registry, privileges, resource, method, uri == place)
                # What would be done is not tried; that it is refused is.
                if allowed and method not in ("GET", "HEAD"):
                    continue
                answer = account.request(method, uri, json={} if method in ("POST", "PATCH") else None)
                expected = (200,) if allowed else (403,)
                compared += 1
                if answer.status_code not in expected:
                    suite.equal(answer.status_code, expected[0], f"{role}: {method} {uri}")
    suite.check(compared > 200, "every resource, method and role was compared", compared)


def a_password_must_be_changed_first(suite, manager):
    account, place = made(suite, manager, "newcomer", "Operator", PasswordChangeRequired=True)
    refused = account.request("GET", "/redfish/v1/Systems")
    suite.equal(refused.status_code, 403, "nothing is done before the password is changed")
    suite.check("PasswordChangeRequired" in refused.text, "and why is said", refused.text)
    own = account.request("PATCH", place, json={"RoleId": "Administrator"})
    suite.equal(own.status_code, 400, "nobody gives himself another role")
    short = account.request("PATCH", place, json={"Password": "short"})
    suite.equal(short.status_code, 400, "a short password is refused")
    suite.equal(account.request("PATCH", place, json={"Password": "a password of my own"}).status_code, 200, "changed")
    account.client.auth = ("newcomer", "a password of my own")
    suite.equal(account.request("GET", "/redfish/v1/Systems").status_code, 200, "then it is open")
    suite.equal(manager.request("DELETE", place).status_code, 204, "and is deleted")
    suite.equal(account.request("GET", "/redfish/v1/Systems").status_code, 401, "then it opens nothing")


def an_account_changed_meanwhile_stays(suite, manager, place):
    tag = manager.request("GET", place).headers["ETag"]
    changed = manager.request("PATCH", place, json={"Enabled": True, "Colour": "red"}, headers={"If-Match": tag})
    suite.equal(changed.status_code, 200, "what can be changed is")
    suite.check("PropertyUnknown" in changed.text, "and what can't is told beside it", changed.text)
    manager.request("PATCH", place, json={"Password": "another password, later"})
    late = manager.request("PATCH", place, json={"Enabled": False}, headers={"If-Match": tag})
    suite.equal(late.status_code, 412, "who has not seen the last change changes nothing")
    one_of_many_is_heard(suite, manager, place)
    last = manager.request("DELETE", f"{ACCOUNTS}/admin")
    suite.equal(last.status_code, 409, "the last administrator stays")


def one_of_many_is_heard(suite, manager, place):
    tag = manager.request("GET", place).headers["ETag"]

    def password_of(number):
        body = {"Password": f"a password, number {number}"}
        return manager.request("PATCH", place, json=body, headers={"If-Match": tag}).status_code

    with ThreadPoolExecutor(8) as clients:
        answers = sorted(clients.map(password_of, range(8)))
    suite.equal(answers, [200] + [412] * 7, "of eight changes at once that rest on the same tag, one is made")


def judge_all(suite, manager):
    made_ones = [(*made(suite, manager, role.lower(), role), role) for role in ("Operator", "ReadOnly", "Planner", "Auditor")]
    roles_are_as_the_registry_says(suite, manager, made_ones)
    a_password_must_be_changed_first(suite, manager)
    an_account_changed_meanwhile_stays(suite, manager, made_ones[0][1])
    for _, place, _ in made_ones:
        manager.request("DELETE", place)
