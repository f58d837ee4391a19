"""A story of managers in turn: what one does that knows an older time is refused by an agent that has seen a later one."""

import secrets

import postgres
from lab import LabManager
from managed import ONE
from suite import SUITE_DIR, secret_file
from with_agents import AGENT, enrol, have_agents, serve


def put_back(lab):
    """A manager whose database was put back to an older copy changes nothing at an agent until that is enrolled again."""
    have_agents(lab, ONE)
    key = secret_file(SUITE_DIR, "cluster-key", secrets.token_hex(32))
    with postgres.served() as database:
        database.create("pool")
        shared = LabManager(lab.folder / "shared", SUITE_DIR / "shared-manager.log")

        def start(name):
            shared.options = ("--store", database.url(name), "--cluster-key-file", key)
            shared.start()

        with lab.managed_by(shared):
            start("pool")
            lab.add()
            enrol(lab, [ONE], "/kept/another-agent")
            lab.ended_well(lab.attach(ONE), "attached by a manager under its lease")
            shared.stop()
            database.dump("pool", SUITE_DIR / "older.dump")
            for change, what in ((lab.detach, "detached"), (lambda: lab.attach(ONE), "attached")):
                start("pool")
                lab.ended_well(change(), f"{what} by one that came after it")
                shared.stop()
            database.restore(SUITE_DIR / "older.dump", "older")
            start("older")
            lab.ended_well(shared.poolwright("resume", "--restored"), "the older copy is accepted")
            refused_and_believed_again(lab)
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
    lab.is_at(None, "by a manager that was put back")


STORIES = (put_back,)
