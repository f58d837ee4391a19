"""Stories of GPUs that fail: one that dies, and errors on a link (AER) as the guest's own kernel counts and logs them.

QEMU has a function send an error up to its root port (`pcie_aer_inject_error`), as hardware does. It needs a function that has
the capability and may report: the accelerator here is its virtio disk under another class, and the guest switches reports on,
as a driver would. QEMU 7.2 lets no message of a corrected error through; those come from the kernel's own `aer_inject`, which
has the kernel read another status than the hardware has. Once it is loaded, QEMU's errors are not seen below that port."""

import json
import struct

from managed import ERRING_SERIAL, ONE, OTHER
from with_agents import have_agents

PORT = "0000:00:01.0"
GPU = "0000:01:00.0"
# In Correctable and Uncorrectable Error Status.
RECEIVER_ERROR, COMPLETION_TIMEOUT = 1 << 0, 1 << 14
PCI_EXPRESS, SERR, REPORT_ALL = 0x10, 1 << 8, 0xF
# Two errors make a link suspect, and that is looked at often.
OPTIONS = ("--telemetry-every", "5s", "--suspect-above", "2")
# An accelerator that counts errors, and that NVML knows nothing of.
ACCELERATOR = {"driver": "virtio-blk-pci", "class": 0x1200, "aer": True}


def octal(data):
    return "".join(f"\\{byte:03o}" for byte in data)


def report(guest, address):
    """Switches reports of errors on, in Command and in Device Control."""
    config = f"/sys/bus/pci/devices/{address}/config"
    _, said = guest.sh(f"od -An -v -tx1 -N 256 {config}")
    space = bytes.fromhex(said)
    at = space[0x34]
    while space[at] != PCI_EXPRESS:
        at = space[at + 1]
    for place, bits in ((0x04, SERR), (at + 8, REPORT_ALL)):
        value = struct.pack("<H", struct.unpack_from("<H", space, place)[0] | bits)
        guest.sh(f"printf '{octal(value)}' | dd of={config} bs=2 count=1 seek={place // 2} conv=notrunc")


def send(guest, device, error):
    """A device of QEMU sends an error, by QEMU's name for it."""
    said = guest.qmp("human-monitor-command", **{"command-line": f"pcie_aer_inject_error {device} {error}"})
    if not said.startswith("OK"):
        raise RuntimeError(f"{device}: {error}: {said}")


def pretend(guest, address, corrected=0, uncorrected=0):
    """The kernel is told of an error by its own means: the `aer_error_inj` of drivers/pci/pcie/aer_inject.c."""
    guest.sh("test -e /dev/aer_inject || insmod /modules/aer_inject.ko")
    bus, device, function = (int(part, 16) for part in address.replace(".", ":").split(":")[1:])
    error = struct.pack("<BBBxIIIIIII", bus, device, function, uncorrected, corrected, 0, 0, 0, 0, 0)
    status, said = guest.sh(f"printf '{octal(error)}' >/dev/aer_inject")
    if status != 0:
        raise RuntimeError(f"{address}: {said}")


def counted(host):
    """By hand: a network card with a serial number among what is no GPU, and an accelerator, count what their links have."""
    card, accelerator = host.place("wide"), host.place("disk")
    host.plug("wide", driver="e1000e", id="card", mac="52:54:00:12:34:56", romfile="")
    host.plug("disk", id="accelerator", drive="erring", **ACCELERATOR)

    def seen(kind, address):
        return next((one for one in host.inventory()[kind] if one["address"] == address), {})

    def counts(kind, address, **expected):
        wanted = {"correctable": 0, "nonfatal": 0, "fatal": 0} | expected
        host.wait(f"{address} has counted {expected}", lambda: seen(kind, address).get("errors") == wanted)
        host.check(True, f"{kind}: {', '.join(expected) or 'none'} counted")

    counts("others", card)
    counts("gpus", accelerator)
    serial = seen("others", card)["serial"]
    host.check(serial == "52-54-00-ff-ff-12-34-56", "the serial number of a network card is read", serial)
    report(host.guest, accelerator)
    send(host.guest, "accelerator", "POISON_TLP")
    counts("gpus", accelerator, nonfatal=1)
    pretend(host.guest, accelerator, corrected=RECEIVER_ERROR)
    counts("gpus", accelerator, nonfatal=1, correctable=1)
    pretend(host.guest, card, corrected=RECEIVER_ERROR)
    counts("others", card, correctable=1)
    pretend(host.guest, card, uncorrected=COMPLETION_TIMEOUT)
    counts("others", card, correctable=1, nonfatal=1)
    host.guest.sh("rmmod aer_inject")
    host.unplug("wide", "card")
    host.unplug("disk", "accelerator")


def suspect(lab):
    """The port above a GPU corrects errors: its link is suspect, for whoever holds it as for a manager."""
    have_agents(lab, ONE)
    guest = lab.guests[ONE]
    lab.ended_well(lab.attach(ONE), "attached where its link will err")

    def errors():
        told = lab.manager.poolwright("get", "telemetry", "-o", "json").json()
        return next((one["correctable_errors"] for one in told if one["gpu"] == lab.name and not one["stale"]), None)

    lab.manager.until("its link is counted", lambda: errors() == 0, 60)
    for _ in range(3):
        pretend(guest, PORT, corrected=RECEIVER_ERROR)
    lab.manager.until("what the port above it corrects is counted for it", lambda: errors() == 3, 60)

    def suspects():
        return [one["gpu"] for one in lab.manager.poolwright("gpu", "suspects", "-o", "json").json()]

    reported(lab, ONE, GpuLinkErrorsCorrected="3")

    lab.manager.until("it is suspect", lambda: suspects() == [lab.name], 60)
    lab.check(lab.where() == (ONE, "attached"), "a GPU that is suspect stays where it is", lab.where())
    guest.sh("rmmod aer_inject")
    lab.ended_well(lab.detach(), "detached with a link that erred")


def reported(lab, name, **expected):
    """Redfish's report of what is measured at a guest has these values, and all of them are where it says."""
    def read(place):
        return lab.manager.api.request("GET", place).json()

    values = read(f"/redfish/v1/TelemetryService/MetricReports/GPUs-{lab.hosts[name]}")["MetricValues"]
    told = {value["MetricId"]: value["MetricValue"] for value in values}
    lab.check(expected.items() <= told.items(), "what is measured is in the report of its host", told)
    for value in values:
        resource, _, pointer = value["MetricProperty"].partition("#/")
        found = read(resource)
        for part in pointer.split("/"):
            found = found[part]
        lab.suite.equal(str(found), value["MetricValue"], f"manager: {value['MetricId']} is where the report says")


def dying(lab):
    """What dies in a guest, and what fails on its link, is taken out of use by what agents tell."""
    have_agents(lab, ONE, OTHER)
    lab.ended_well(lab.attach(ONE), "attached where it will die")
    accelerator = lab.manager.gpu(ERRING_SERIAL)["id"]
    lab.ended_well(lab.attach(OTHER, of=accelerator), "an accelerator is attached where its link will fail")
    lab.gpu.dead = True
    report(lab.guests[OTHER], GPU)
    send(lab.guests[OTHER], "accelerator", "DLP")

    def why(gpu):
        listed = lab.manager.poolwright("gpu", "list", "-o", "json").json()
        return [json.dumps(one["cause"]) for one in listed if one["gpu"] == gpu]

    # The manager asks agents every half minute.
    for gpu, what, cause in (
        (lab.name, "a dead GPU", "gone"),
        (accelerator, "an accelerator with a fatal error on its link", "fatal-aer"),
    ):
        told = lab.manager.until(f"{what} is out of use", lambda: why(gpu), 120)
        lab.check(cause in told[0], f"why {what} is out of use is kept", told)
    # What that kernel counts of it.
    _, counts = lab.guests[OTHER].sh(f"grep TOTAL /sys/bus/pci/devices/{GPU}/aer_dev_fatal")
    lab.suite.evidence["manager: fatal errors that the kernel counted, of the one it logged"] = counts
    lab.ended_well(lab.detach(of=accelerator), "an accelerator whose link failed is let go of")


STORIES = (suspect,)
# It takes GPUs out of use.
LAST = (dying,)
