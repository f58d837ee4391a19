"""Clients of others read the pool: DMTF's redfishtool, OpenStack's sushy, Ansible's redfish_info."""

import json
import os
import tempfile
from pathlib import Path

import sushy
from rack import USER
from suite import ROOT, run, secret_file

# What Ansible is asked for, and the fact that it makes of it.
ANSIBLE = {
    "Systems": {"GetSystemInventory": "system", "GetCpuInventory": "cpu"},
    "Chassis": {"GetChassisInventory": "chassis"},
    "Accounts": {"ListUsers": "user"},
    "Sessions": {"GetSessions": "session"},
    "Manager": {"GetManagerInventory": "manager"},
    "Service": {"CheckAvailability": "service"},
}


def ids(manager, collection):
    members = manager.request("GET", f"/redfish/v1/{collection}").json()["Members"]
    return sorted(member["@odata.id"].rsplit("/", 1)[1] for member in members)


def system_of(manager, demand):
    """The id of the system that is composed for a demand, if there is one."""
    return next((system for system in ids(manager, "Systems") if system.startswith(f"{demand}-")), None)


def redfishtool_reads_and_composes(suite, manager):
    address = manager.url.removeprefix("https://")
    with tempfile.TemporaryDirectory() as folder:
        config = secret_file(folder, "account.json", json.dumps({"user": USER, "password": manager.password}))

        def tool(*arguments):
            command = [ROOT / ".venv/bin/redfishtool", "-r", address, "-c", config, "-S", "Always", "-n", *arguments]
            done = run(*command, env={"PATH": os.environ["PATH"]})
            suite.check(done.code == 0, f"redfishtool {' '.join(arguments[:3])}", done)
            return json.loads(done.out) if done.code == 0 and done.out.strip() else {}

        for collection in ("Systems", "Chassis", "Managers"):
            seen = sorted(member["Id"] for member in tool(collection, "list")["Members"])
            suite.equal(seen, ids(manager, collection), f"redfishtool lists {collection}")
        three = system_of(manager, "three")
        system = tool("Systems", "-I", three, "get")
        suite.equal(system.get("SystemType"), "Composed", "redfishtool shows a composed system")
        processors = tool("Systems", "-I", three, "Processors", "list")
        suite.equal(processors.get("Members@odata.count"), 3, "with its GPUs")
        suite.equal(tool("AccountService", "Accounts")["Members@odata.count"], 1, "redfishtool counts accounts")

        wish = {"Name": "by-tool", "Processors": {"Members": [{"@Redfish.RequestedCount": 1, "ProcessorType": "GPU"}]}}
        tool("raw", "POST", "/redfish/v1/Systems", "-d", json.dumps(wish))
        system = system_of(manager, "by-tool")
        suite.check(system, "redfishtool composes a system")
        tool("raw", "DELETE", f"/redfish/v1/Systems/{system}")
        suite.equal(system_of(manager, "by-tool"), None, "and decomposes it")


def sushy_reads(suite, manager):
    root = sushy.Sushy(
        f"{manager.url}/redfish/v1/", username=USER, password=manager.password, verify=str(manager.authority)
    )
    systems = {system.identity: system for system in root.get_system_collection().get_members()}
    suite.equal(sorted(systems), ids(manager, "Systems"), "sushy reads the systems")
    three = systems[system_of(manager, "three")]
    suite.equal(three.system_type.value, "Composed", "sushy shows a composed system")
    kinds = [processor.processor_type.value for processor in three.processors.get_members()]
    suite.equal(kinds, ["GPU"] * 3, "with its GPUs")
    boxes = sorted(chassis.identity for chassis in root.get_chassis_collection().get_members())
    suite.equal(boxes, ids(manager, "Chassis"), "sushy reads the boxes")
    endpoints = [end for fabric in root.get_fabric_collection().get_members() for end in fabric.endpoints.get_members()]
    suite.check(len(endpoints) > len(systems), "sushy reads the endpoints of the fabrics", len(endpoints))
    tasks = root.get_task_service().tasks.get_members()
    suite.check(any(task.task_state.value == "Completed" for task in tasks), "sushy reads the tasks", len(tasks))


def ansible_reads(suite, manager):
    login = {
        "baseuri": manager.url.removeprefix("https://"),
        "username": USER,
        "password": "{{ lookup('ansible.builtin.file', password_file) }}",
        "validate_certs": True,
        "ca_path": str(manager.authority),
    }
    asked = [
        {"community.general.redfish_info": login | {"category": [category], "command": list(commands)}}
        for category, commands in ANSIBLE.items()
    ]
    play = [{"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": asked}]
    with tempfile.TemporaryDirectory() as home:
        playbook = Path(home) / "read.json"
        playbook.write_text(json.dumps(play))
        python = ROOT / ".venv/bin/python"
        variables = {"ansible_python_interpreter": str(python), "password_file": str(manager.password_file)}
        command = [ROOT / ".venv/bin/ansible-playbook", "-i", "localhost,", "-e", json.dumps(variables), playbook]
        quiet = {"ANSIBLE_HOME": home, "HOME": home, "ANSIBLE_STDOUT_CALLBACK": "ansible.posix.json", "LC_ALL": "C.UTF-8"}
        done = run(*command, env=quiet | {"PATH": f"{ROOT}/.venv/bin:{os.environ['PATH']}"})
    suite.check(done.code == 0, "a playbook with redfish_info ends well", done)
    facts = {}
    for task in json.loads(done.out)["plays"][0]["tasks"]:
        facts |= task["hosts"]["localhost"]["redfish_facts"]
    for name in (name for commands in ANSIBLE.values() for name in commands.values()):
        suite.check(facts[name]["ret"], f"redfish_info has the fact {name!r}", facts[name])
    seen = sorted(system["Id"] for _, system in facts["system"]["entries"])
    suite.equal(seen, ids(manager, "Systems"), "redfish_info lists all systems")
    gpus = sum(len(processors) for _, processors in facts["cpu"]["entries"])
    suite.check(gpus >= 4, "and their GPUs", gpus)


def judge_all(suite, manager):
    redfishtool_reads_and_composes(suite, manager)
    sushy_reads(suite, manager)
    ansible_reads(suite, manager)
