"""A story of two managers: one goes on with a restored copy of the database, and an agent refuses the other one."""

import secrets
import shutil

import postgres
from lab import LabManager
from managed import ONE
from suite import SUITE_DIR, secret_file
from with_agents import AGENT, enrol, have_agents, serve


def put_back(lab):
    """Once an older copy of the database is accepted, its manager is in charge at agents; one that still has the database from
    before changes nothing there until the agent is enrolled again."""
    have_agents(lab, ONE)
    key = secret_file(SUITE_DIR, "cluster-key", secrets.token_hex(32))
    restored, replaced = (LabManager(lab.folder / name, SUITE_DIR / f"{name}-manager.log") for name in ("restored", "replaced"))
    with postgres.served() as database, lab.managed_by(restored):

        def start(manager, name):
            manager.options = ("--store", database.url(name), "--cluster-key-file", key)
            manager.start()

        database.create("pool")
        start(restored, "pool")
        lab.add()
        enrol(lab, [ONE], "/kept/another-agent")
        lab.ended_well(lab.attach(ONE), "attached by a manager under its lease")
        restored.stop()
        shutil.copytree(restored.folder, replaced.folder)
        database.dump("pool", SUITE_DIR / "older.dump")
        for change, what in ((lab.detach, "detached"), (lambda: lab.attach(ONE), "attached")):
            start(restored, "pool")
            lab.ended_well(change(), f"{what} by one that came after it")
            restored.stop()
        database.restore(SUITE_DIR / "older.dump", "older")
        start(restored, "older")
        lab.ended_well(restored.poolwright("resume", "--restored"), "the older copy is accepted")
        for change, what in ((lab.detach, "detached"), (lambda: lab.attach(ONE), "attached")):
            lab.ended_well(change(), f"{what} with the older copy")
        restored.stop()
        lab.manager = replaced
        try:
            start(replaced, "pool")
            refused_and_believed_again(lab)
        finally:
            replaced.stop()
    lab.guests[ONE].agent = AGENT
    serve(lab, ONE)


def refused_and_believed_again(lab):
    refused = lab.detach()
    told = "another manager is in charge of this host by now: epoch" in refused.err
    lab.check(refused.code != 0 and told, "an agent that has seen a later epoch refuses", refused)
    lab.check("enrol the agent again" in refused.err, "and says what is to be done", refused)
    lab.over("what was refused is undone")
    lab.is_at(ONE, "what was refused")
    lab.suite.equal(lab.where(), (ONE, "attached"), "manager: what was refused: it is in use as before")
    enrol(lab, [ONE], "/kept/another-agent")
    lab.ended_well(lab.detach(), "enrolled again, the agent believes the manager")
    lab.is_at(None, "by a manager that was replaced")


STORIES = (put_back,)
