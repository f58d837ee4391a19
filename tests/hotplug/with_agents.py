"""Stories of guests with an agent: it confirms what came, names who uses it, and what goes wrong is undone."""

import json

from managed import CRAMPED, DISK_SERIAL, NATIVE, ONE, OTHER, UUID

# On a disk, which outlives the guest's kernel.
AGENT = "/kept/agent"


def have_agents(lab, *names):
    """Enrols those that have none yet."""
    enrol(lab, [name for name in names if not hasattr(lab.guests[name], "agent")])


def enrol(lab, names, folder=AGENT):
    """Agents in these guests, by one token for all of them."""
    if not names:
        return
    uuids = [word for name in names for word in ("--uuid", lab.guests[name].uuid)]
    token = lab.manager.poolwright("host", "token", *uuids)
    lab.ended_well(token, "a token for agents")
    port = lab.manager.api.url.rsplit(":")[-1]
    for name in names:
        guest = lab.guests[name]
        if not hasattr(guest, "agent"):
            guest.join_network()
            guest.sh("mke2fs /dev/nvme0n1")
            mount(guest)
        guest.agent = folder
        guest.put("/tmp/token", token.out)
        guest.put("/tmp/ca.pem", (lab.manager.folder / "tls/ca.pem").read_text())
        status, said = guest.sh(
            f"poolwright-agent enrol --manager https://10.0.2.2:{port} --ca /tmp/ca.pem --token-file /tmp/token"
            f" --address {guest.agent_at} --dir {folder} 2>&1"
        )
        lab.check(status == 0, f"{name}: its agent is enrolled", said)
        serve(lab, name)


def mount(guest):
    status, said = guest.sh("mkdir -p /kept && mount -t ext4 -o sync /dev/nvme0n1 /kept")
    if status != 0:
        raise RuntimeError(f"its disk: {said}")


def serve(lab, name):
    """The agent that was enrolled last serves, and no other one."""
    guest = lab.guests[name]
    guest.sh("test -e /tmp/agent.pid && kill -9 $(cat /tmp/agent.pid)")
    guest.sh(f"poolwright-agent serve --dir {guest.agent} </dev/null >/tmp/agent.log 2>&1 & echo $! >/tmp/agent.pid")
    lab.manager.until(f"{name}: its agent listens", lambda: "listens" in guest.sh("cat /tmp/agent.log")[1])


def confirming(lab):
    """It confirms what came, names who uses it, and is not passed over when it hangs."""
    have_agents(lab, ONE, OTHER, CRAMPED)
    guest = lab.guests[ONE]
    attached(lab, ONE)
    is_kept_while_used(lab, ONE)

    guest.sh("kill -STOP $(cat /tmp/agent.pid)")
    hung = lab.detach()
    lab.check(hung.code != 0, "an agent that hangs is not passed over", hung)
    lab.is_at(ONE, "while its agent hangs")
    guest.sh("kill -CONT $(cat /tmp/agent.pid)")
    lab.ended_well(lab.move(OTHER), "moved from agent to agent")
    lab.is_at(OTHER, "with the other agent")

    lab.ended_well(lab.detach(), "detached with an agent")
    guest.sh("kill -STOP $(cat /tmp/agent.pid)")
    refused = lab.attach(ONE)
    lab.check(refused.code != 0, "nothing comes to a host whose agent hangs", refused)
    lab.over("it is undone")
    lab.is_at(None, "with an agent that hung")
    guest.sh("kill -CONT $(cat /tmp/agent.pid)")


def attached(lab, name):
    """It comes, and the agent there confirms it."""
    lab.ended_well(lab.attach(name), f"{name}: attached with an agent")
    step = lab.last_step("verify")
    said = UUID in step["evidence"] and "0000:01:00.0" in step["evidence"]
    lab.check(said, f"{name}: the agent says what it saw", step)
    lab.suite.equal(lab.where(), (name, "attached"), f"manager: {name}: and so it is attached, and not just bound")
    lab.is_at(name, f"{name}: attached with an agent")


def is_kept_while_used(lab, name):
    guest = lab.guests[name]
    guest.sh("sleep 500 & echo $! >/tmp/nvml_processes")
    busy = lab.detach()
    lab.check(busy.code != 0 and "sleep 500" in busy.err, f"{name}: in use it is not pulled; who uses it is named", busy)
    lab.is_at(name, f"{name}: a GPU in use")
    lab.suite.equal(lab.where(), (name, "attached"), f"manager: {name}: a GPU in use is what it was")
    guest.sh("kill $(cat /tmp/nvml_processes); rm /tmp/nvml_processes")


def natively(lab):
    """The same where the kernel drives the slot itself, and from there to a slot that firmware drives, and back."""
    have_agents(lab, NATIVE, ONE)
    attached(lab, NATIVE)
    is_kept_while_used(lab, NATIVE)
    for name in (ONE, NATIVE):
        lab.ended_well(lab.move(name), f"{name}: moved from agent to agent")
        lab.is_at(name, f"{name}: moved from agent to agent")
        lab.suite.equal(lab.where(), (name, "attached"), f"manager: {name}: confirmed by the agent that it came to")
    lab.ended_well(lab.detach(), "native: detached with an agent")
    lab.is_at(None, "native: detached with an agent")


def mounted(lab):
    """A disk is pooled, too: while it is mounted it stays, and what is on it can be read."""
    have_agents(lab, ONE)
    guest, disk = lab.guests[ONE], "/dev/nvme1n1"
    lab.ended_well(lab.attach(ONE, of=lab.disk), "a disk is attached")
    lab.manager.until("its kernel shows the disk", lambda: guest.sh(f"test -b {disk}")[0] == 0)
    status, said = guest.sh(f"mke2fs {disk} && mount -t ext4 {disk} /mnt && echo written >/mnt/file")
    lab.check(status == 0, "the disk is mounted", said)
    refused = lab.detach(of=lab.disk)
    named = disk in refused.err and "/mnt" in refused.err
    lab.check(refused.code != 0 and named, "a disk that is mounted is not pulled; where it is mounted is named", refused)
    lab.suite.equal(lab.manager.gpu(DISK_SERIAL)["state"], "attached", "manager: a disk that is mounted")
    guest.sh("echo 3 >/proc/sys/vm/drop_caches")
    lab.suite.equal(guest.sh("cat /mnt/file"), (0, "written"), "manager: what is on it can be read")
    guest.sh("umount /mnt")
    lab.ended_well(lab.detach(of=lab.disk), "a disk that is mounted no more goes")
    lab.suite.equal(lab.manager.gpu(DISK_SERIAL)["state"], "free", "manager: a disk that went")
    lab.manager.until("its kernel shows the disk no more", lambda: guest.sh(f"test -b {disk}")[0] != 0)


def hooks(guest, **lines):
    """What the agent there runs from now on: shell lines by their hooks."""
    text = "".join(f"{name.replace('_', '-')} = {json.dumps(['/bin/sh', '-c', line])}\n" for name, line in lines.items())
    guest.put(f"{guest.agent}/hooks.toml", text)


def is_undone(lab, refused, what, why):
    """An attach that failed says why and left nothing behind."""
    lab.check(refused.code != 0 and why in refused.err, what, refused)
    lab.is_at(None, what)
    lab.suite.equal(lab.where(), (None, "free"), f"manager: {what}: the GPU is free")


def undone(lab):
    """An attach that fails is undone at whatever step that is, and a detach leaves the GPU where it was."""
    have_agents(lab, ONE, CRAMPED)
    guest = lab.guests[ONE]
    is_undone(lab, lab.attach(CRAMPED), "no room for it is told before it comes", "hpmmioprefsize")
    lab.gpu.plugs_in = False
    is_undone(lab, lab.attach(ONE), "a device that does not answer", "slot 1 is empty")
    lab.gpu.plugs_in, lab.gpu.lanes = True, 8
    is_undone(lab, lab.attach(ONE), "a link that has trained down", "x8, at best 16 GT/s x16, and")
    lab.gpu.lanes = 16
    hooks(guest, health_check="echo 'memory test failed'; exit 1")
    is_undone(lab, lab.attach(ONE), "a GPU that is not well", "memory test failed")
    hooks(guest, after_attach="echo came >>/tmp/told; exit 1", before_detach="echo goes >>/tmp/told")
    is_undone(lab, lab.attach(ONE), "a scheduler that does not take it", "after-attach")
    told = guest.sh("cat /tmp/told")[1].split()
    lab.check(told[:2] == ["came", "goes"], "who was told that it came is told that it goes", told)

    hooks(guest, before_detach="exit 1", detach_undone="echo stays >>/tmp/stays")
    lab.ended_well(lab.attach(ONE), "attached where a hook will not let it go")
    refused = lab.detach()
    lab.check(refused.code != 0 and "before-detach" in refused.err, "a hook that fails holds up a detach", refused)
    lab.is_at(ONE, "a detach that was held up")
    lab.suite.equal(lab.where(), (ONE, "attached"), "manager: a detach that was held up: it is in use as before")
    lab.check(guest.sh("cat /tmp/stays")[1].split(), "and the host is told that it stays")
    hooks(guest)
    lab.ended_well(lab.detach(), "detached once nothing holds it up")


def pulled(lab):
    """One that is attached is pulled from its slot: whoever holds it is told, and it is given to nobody as if it were there."""
    have_agents(lab, ONE)
    guest = lab.guests[ONE]
    if lab.where()[0] is None:
        lab.ended_well(lab.attach(ONE), "attached where it will be pulled")
    guest.qmp("device_del", id="gpu-a")
    lab.manager.until("it is out of its slot", lambda: not guest.has("gpu-a"))
    told = lab.manager.poolwright("diff", "--look", "-o", "json").json()
    whose = [(one["kind"], lab.hosts[ONE] in one["composition"]) for one in told if one["gpu"] == lab.name]
    lab.suite.equal(whose, [("unbound", True)], "manager: who should hold a GPU that was pulled is told")
    refused = lab.attach(OTHER)
    lab.check(refused.code != 0, "a GPU that was pulled from who holds it is given to nobody else", refused)
    lab.suite.equal(lab.seen_by(), [], "manager: no kernel has a GPU that was pulled")
    lab.ended_well(lab.detach(), "who holds it lets go of nothing")
    lab.suite.equal(lab.where()[0], None, "manager: a GPU that was pulled and let go of")


STORIES = (confirming, natively, mounted, undone)
# It takes the GPU out of its slot.
LAST = (pulled,)
