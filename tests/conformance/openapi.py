"""The OpenAPI document of the Redfish service: it has what there is."""

import re

import yaml

DOCUMENT = "/redfish/v1/openapi.yaml"


def pattern_of(path):
    parts = re.split(r"\{Id\d+\}", path.rstrip("/"))
    return re.compile("[^/]+".join(map(re.escape, parts)))


def judge_all(suite, manager):
    answer = manager.request("GET", DOCUMENT)
    paths = yaml.safe_load(answer.text)["paths"]
    patterns = {pattern_of(path): path for path in paths}
    missing = []
    for uri in manager.resources():
        found = [path for pattern, path in patterns.items() if pattern.fullmatch(uri)]
        allow = manager.request("GET", uri).headers.get("Allow", "GET").split(", ")
        told = {method.upper() for path in found for method in paths[path]}
        if not set(allow) - {"HEAD"} <= told:
            missing.append((uri, allow, sorted(told)))
    suite.equal(missing, [], "every resource is in the OpenAPI document with its methods")
    firmware = manager.request("GET", "/redfish/v1/UpdateService/FirmwareInventory").json()["Members"]
    read = [manager.request("GET", member["@odata.id"]).json() for member in firmware]
    suite.check(read and all(one["Version"] for one in read), "firmware is told with its version", read)
