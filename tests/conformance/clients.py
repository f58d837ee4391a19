"""Clients of others read the pool: DMTF's redfishtool and rf_logs, OpenStack's sushy, Ansible's redfish_info."""

import contextlib
import io
import json
import os
import tempfile
from pathlib import Path

import redfish
import redfish_utilities
import sushy
from rack import USER
from suite import ROOT, run, secret_file

# Facts of `command: all` that a pool has. Ansible also asks for fans, disks and other parts that a pool lacks.
FACTS = (
    *("system", "cpu", "power_restore_policy", "chassis", "user", "accountservice_config", "session", "service"),
    *("firmware", "software", "manager", "log", "network_protocols", "health_report", "service_id"),
)


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
    update = root.get_update_service()
    suite.equal(update.service_enabled, False, "sushy is told that nothing is updated")
    firmware = sorted(one.identity for one in update.firmware_inventory.get_members())
    suite.equal(firmware, ids(manager, "UpdateService/FirmwareInventory"), "sushy reads the firmware")
    software = [(one.identity, bool(one.version)) for one in update.software_inventory.get_members()]
    suite.equal(software, [("Poolwright", True)], "and the software")


def rf_logs_reads(suite, manager):
    """As DMTF's rf_logs.py does."""
    client = redfish.redfish_client(base_url=manager.url, cafile=str(manager.authority_file))
    client.login(username=USER, password=manager.password, auth="session")
    try:
        entries = redfish_utilities.get_log_entries(client)
        suite.check(entries, "rf_logs finds the audit log")
        without = [entry["Id"] for entry in entries if not entry.get("MessageId")]
        suite.equal(without, [], "each entry has a MessageId")
        with contextlib.redirect_stdout(io.StringIO()) as shown:
            redfish_utilities.print_log_entries(entries, details=True)
        suite.check("MessageId: PoolwrightAudit.1.0." in shown.getvalue(), "rf_logs prints it", shown.getvalue()[:400])
    finally:
        client.logout()


def ansible_reads(suite, manager):
    login = {
        "baseuri": manager.url.removeprefix("https://"),
        "username": USER,
        "password": "{{ lookup('ansible.builtin.file', password_file) }}",
        "validate_certs": True,
        "ca_path": str(manager.authority),
    }
    asked = [{"community.general.redfish_info": login | {"category": ["all"], "command": ["all"]}}]
    play = [{"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": asked}]
    with tempfile.TemporaryDirectory() as home:
        playbook = Path(home) / "read.json"
        playbook.write_text(json.dumps(play))
        python = ROOT / ".venv/bin/python"
        variables = {"ansible_python_interpreter": str(python), "password_file": str(manager.password_file)}
        command = [ROOT / ".venv/bin/ansible-playbook", "-i", "localhost,", "-e", json.dumps(variables), playbook]
        quiet = {"ANSIBLE_HOME": home, "HOME": home, "ANSIBLE_STDOUT_CALLBACK": "ansible.posix.json", "LC_ALL": "C.UTF-8"}
        done = run(*command, env=quiet | {"PATH": f"{ROOT}/.venv/bin:{os.environ['PATH']}"})
    if not suite.check(done.code == 0, "a playbook with redfish_info, command: all, ends well", done):
        return
    facts = {}
    for task in json.loads(done.out)["plays"][0]["tasks"]:
        facts |= task["hosts"]["localhost"]["redfish_facts"]
    for name in FACTS:
        fact = facts.get(name, {})
        # Where redfish_info fails it may say "False", which is true.
        suite.check(fact.get("ret") is True, f"redfish_info has the fact {name!r}", fact)
    [log] = facts["log"]["entries"]
    suite.check(all(entry.get("MessageId") for entry in log["Entries"]), "each log entry has a MessageId", log)
    seen = sorted(system["Id"] for _, system in facts["system"]["entries"])
    suite.equal(seen, ids(manager, "Systems"), "redfish_info lists all systems")
    gpus = sum(len(processors) for _, processors in facts["cpu"]["entries"])
    suite.check(gpus >= 4, "and their GPUs", gpus)


def judge_all(suite, manager):
    redfishtool_reads_and_composes(suite, manager)
    sushy_reads(suite, manager)
    rf_logs_reads(suite, manager)
    ansible_reads(suite, manager)
