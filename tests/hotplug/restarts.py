"""Stories of a host whose kernel starts anew while a GPU comes or goes: what the one before was told counts no more, and the
GPU is neither lost nor had twice."""

from managed import ONE
from with_agents import have_agents, hooks, mount, serve

BOOT = "cat /proc/sys/kernel/random/boot_id"
# Which starts of the host were told that a GPU goes.
TOLD = "/kept/told"


def start_again(lab):
    """Its kernel and its agent."""
    guest = lab.guests[ONE]
    before = guest.sh(BOOT)
    # Its file system has no journal.
    guest.sh("sync")
    guest.reset()
    lab.check(guest.sh(BOOT) != before, "the guest has started again", before)
    guest.join_network()
    mount(guest)
    serve(lab, ONE)


def while_it_comes(lab):
    """An attach waits for the host that starts, and says that it has."""
    have_agents(lab, ONE)
    # A start of a host may take longer than it may take to see a GPU, where the machine is busy.
    lab.manager.stop()
    lab.manager.start(confirm="120s")
    lab.gpu.lanes = 8
    asked = lab.ask("attach", "--host", lab.hosts[ONE], "--no-wait")
    lab.check(asked.code == 0, "an attach goes on without whoever asked", asked)
    lab.until_it_waits_for("x8, at best")
    # Its link is trained anew with the host's start.
    lab.gpu.lanes = 16
    start_again(lab)
    lab.over("the attach ends")
    step = lab.last_step("verify")
    told = "has started again since it was asked for room" in (step["evidence"] or "")
    lab.check(told, "that its host has started in the middle of an attach is told", step)
    lab.suite.equal(lab.where(), (ONE, "attached"), "manager: a host that started in the middle of an attach has it")
    lab.is_at(ONE, "a start in the middle of an attach")
    lab.manager.stop()
    lab.manager.start()


def while_it_goes(lab):
    """A host that let go of a GPU and started is made to let go once more: its kernel has it again."""
    have_agents(lab, ONE)
    guest = lab.guests[ONE]
    if lab.where()[0] is None:
        lab.ended_well(lab.attach(ONE), "attached where it will start again")
    hooks(guest, before_detach=f"{BOOT} >>{TOLD}; until test -e /tmp/go; do sleep 0.1; done")
    lab.ask("detach", "--yes", "--no-wait")
    lab.manager.until("its host is told that it goes", lambda: is_told(guest))
    paused = lab.manager.poolwright("pause", "--endpoint", "lab")
    lab.ended_well(paused, "nothing is unbound for a while")
    guest.sh("touch /tmp/go")
    lab.manager.until("the host has let go of it", lambda: lab.last_step("drain")["state"] == "done")
    lab.suite.equal(lab.seen_by(), [], "manager: its kernel has it no more")
    hooks(guest, before_detach=f"{BOOT} >>{TOLD}")
    start_again(lab)
    lab.check(not is_told(guest), "the kernel that has started was not told yet")
    lab.suite.equal(lab.seen_by(), [ONE], "manager: a kernel that starts has it again")
    lab.ended_well(lab.manager.poolwright("resume", "--endpoint", "lab", "--yes"), "and then it goes on")
    lab.over("the detach ends")
    # A question that the manager asks over its connection from before the start is lost: then nothing is unbound.
    if lab.where()[0] == ONE:
        lab.is_at(ONE, "a host that could not say who uses it")
        lab.ended_well(lab.detach(), "asked again it goes")
    # Whoever of the two tries it was: nothing leaves a kernel that was not told.
    lab.check(is_told(guest), "the host that started lets go of it once more", guest.sh(f"cat {TOLD}"))
    lab.suite.equal(lab.where(), (None, "free"), "manager: a host that started before the unbind has let go of it")
    lab.is_at(None, "a start in the middle of a detach")


def is_told(guest):
    """Whether it was told since its kernel started last."""
    return guest.sh(BOOT)[1].strip() in guest.sh(f"cat {TOLD} 2>&1")[1].split()


STORIES = (while_it_comes, while_it_goes)
