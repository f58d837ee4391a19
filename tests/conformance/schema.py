"""Whether DMTF's JSON Schemas allow a request body.

The schemas describe resources as they are read. A request body is something less: what is required of a
reader is not required of a writer, what is read only must not be written by PATCH, and an action's body is
what its definition lists under `parameters` (DSP0266, "JSON Schema" and "Actions").
"""

import copy
import json
import re

import jsonschema
import referencing
from referencing.jsonschema import DRAFT7

BASE = "http://redfish.dmtf.org/schemas/v1/"


class Schemas:
    def __init__(self, folder):
        self.folder = folder
        self.files = {file.name for file in folder.glob("*.json")}

    def newest(self, resource):
        """The newest version's file of a resource type, such as Zone.v1_6_3.json for Zone."""
        versions = {}
        for name in self.files:
            if match := re.fullmatch(rf"{resource}\.v(\d+)_(\d+)_(\d+)\.json", name):
                versions[tuple(map(int, match.groups()))] = name
        return versions[max(versions)]

    def objections(self, where, resource, definition, body):
        """Why the schema forbids `body`: a list of messages, empty when it is allowed.

        `where` is "create" (POST on a collection), "update" (PATCH) or "action".
        """
        name = self.newest(resource)
        registry = referencing.Registry(retrieve=lambda uri: self.request_schema(uri, where))
        if where == "action":
            target = self.action(name, definition)
        else:
            target = {"$ref": f"{BASE}{name}#/definitions/{definition}"}
        validator = jsonschema.Draft7Validator(target, registry=registry)
        return [error.message for error in validator.iter_errors(body)]

    def load(self, name):
        return json.loads((self.folder / name).read_text())

    def action(self, name, definition):
        schema = self.load(name)["definitions"][definition]
        parameters = {
            key: self.as_request(self.absolute(value, name), "action") for key, value in schema["parameters"].items()
        }
        required = [key for key, value in schema["parameters"].items() if value.get("requiredParameter")]
        return {
            "type": "object",
            "properties": parameters,
            "required": required,
            "patternProperties": schema["patternProperties"],
            "additionalProperties": False,
        }

    def absolute(self, value, name):
        """Local references made to say which file they are in."""
        if isinstance(value, dict):
            return {
                key: BASE + name + inner if key == "$ref" and inner.startswith("#") else self.absolute(inner, name)
                for key, inner in value.items()
            }
        return [self.absolute(inner, name) for inner in value] if isinstance(value, list) else value

    def request_schema(self, uri, where):
        schema = self.as_request(self.load(uri.removeprefix(BASE)), where)
        return referencing.Resource(contents=schema, specification=DRAFT7)

    def as_request(self, value, where):
        if isinstance(value, list):
            return [self.as_request(inner, where) for inner in value if not self.unknown(inner)]
        if not isinstance(value, dict):
            return value
        schema = {key: self.as_request(inner, where) for key, inner in copy.copy(value).items() if key != "$schema"}
        if isinstance(schema.get("required"), list):
            schema["required"] = schema.get("requiredOnCreate", []) if where == "create" else []
        if where == "update" and isinstance(schema.get("properties"), dict):
            for name, inner in schema["properties"].items():
                if isinstance(inner, dict) and inner.get("readonly") is True:
                    schema["properties"][name] = False
        return schema

    def unknown(self, value):
        """A choice that points to an older version of a schema: only the newest of each is published here."""
        target = value.get("$ref", "") if isinstance(value, dict) else ""
        return target.startswith(BASE) and target.removeprefix(BASE).partition("#")[0] not in self.files
