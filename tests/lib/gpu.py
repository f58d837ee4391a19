"""A GPU that is none, for a guest of QEMU: to its kernel it has the ids, the registers and the link of an H100, it comes and
goes, and it can die. QEMU's `x-pci-proxy-dev` asks a process of ours for whatever is read from its config space; messages
are those of QEMU's multi-process protocol (include/hw/remote/mpqemu-link.h, QEMU 7.2)."""

import array
import socket
import struct
import threading

HEAD = struct.Struct("<iiQ")  # command, padding, size of what follows
RETURN, CONFIG_WRITE, CONFIG_READ, BAR_WRITE, BAR_READ, IRQ, RESET = range(1, 8)
CONFIG = struct.Struct("<IIi")  # address, value, length
BAR = struct.Struct("<QQI")
ALL_ONES = 2**64 - 1

MIB, GIB = 1 << 20, 1 << 30
# Registers of an H100 of 80 GB by number: each is of 64 bits, prefetches, and takes two.
REGISTERS = {0: 16 * MIB, 2: 128 * GIB, 4: 32 * MIB}
WIDE_AND_PREFETCHING = 0xC
# A register that QEMU's own look at the device can't size: it reads 32 bits of each.
TOO_LARGE_FOR_QEMU = 1 << 31


class Config:
    """4096 bytes, and which bits of them can be written."""

    def __init__(self, serial, lanes):
        self.bytes, self.writable = bytearray(4096), bytearray(4096)
        self.put("<HH", 0x00, 0x10DE, 0x2330)
        self.put("<H", 0x06, 0x10)  # it has capabilities
        self.put("<BBBB", 0x08, 0xA1, 0x00, 0x02, 0x03)  # revision, and a 3D controller
        self.put("<HH", 0x2C, 0x10DE, 0x16C1)
        self.put("<B", 0x34, 0x40)
        self.writable[0x04:0x06] = b"\xff\xff"
        self.writable[0x3C] = 0xFF
        for number, size in REGISTERS.items():
            at, mask = 0x10 + 4 * number, ALL_ONES & ~(size - 1)
            self.put("<I", at, WIDE_AND_PREFETCHING)
            struct.pack_into("<Q", self.writable, at, mask)
        # PCI Express: an endpoint whose link can be 32 GT/s x16, and is, or has trained down.
        self.put("<BBH", 0x40, 0x10, 0x00, 0x02)
        self.put("<I", 0x44, 0x8022)
        self.put("<I", 0x4C, 5 | 16 << 4)
        self.put("<H", 0x52, 5 | lanes << 4)
        self.put("<I", 0x6C, 0b111110)
        # A serial number, which kernels read only where the port hands extended config space on.
        self.put("<IQ", 0x100, 0x0001_0003, serial)

    def put(self, form, at, *values):
        struct.pack_into(form, self.bytes, at, *values)

    def read(self, at, length):
        return int.from_bytes(self.bytes[at : at + length], "little")

    def write(self, at, value, length):
        for offset, new in enumerate((value & ALL_ONES).to_bytes(8, "little")[:length], at):
            may = self.writable[offset]
            self.bytes[offset] = self.bytes[offset] & ~may & 0xFF | new & may


class Gpu:
    """Plugged in with the socket that `plug` gives; answers until QEMU lets go of it."""

    def __init__(self, serial=0x48252D000A3B11C7, lanes=16):
        """lanes: what its link has now; more are possible."""
        self.serial, self.lanes, self.dead = serial, lanes, False
        # Whether it answers whoever plugs it in.
        self.plugs_in = True

    def listen(self, path):
        """Is plugged in by whoever connects there: as a lab does (docs/LAB.md)."""
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        listener.listen()
        threading.Thread(target=self.serve_all, args=(listener,), daemon=True).start()

    def serve_all(self, listener):
        while True:
            link, _ = listener.accept()
            if not self.plugs_in:
                link.close()
                continue
            self.power_on()
            threading.Thread(target=self.serve, args=(link,), daemon=True).start()

    def power_on(self):
        self.guest_has_it = False
        self.reset()

    def reset(self):
        """Its registers are as they were at first, and its link is trained anew."""
        self.config = Config(self.serial, self.lanes)

    def plug(self):
        """Another end for QEMU; the GPU is as after power on."""
        self.power_on()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        threading.Thread(target=self.serve, args=(ours,), daemon=True).start()
        return theirs

    def serve(self, link):
        with link:
            while head := self.receive(link, HEAD.size):
                command, _, size = HEAD.unpack(head)
                body = self.receive(link, size) if size else b""
                answer = self.answer(command, body)
                if answer is not None:
                    link.sendall(HEAD.pack(RETURN, 0, 8) + struct.pack("<Q", answer & ALL_ONES))

    @staticmethod
    def receive(link, size):
        """Bytes, without the files that come with some of them. Nothing: the other end is closed."""
        got = b""
        while len(got) < size:
            try:
                some, extra, _, _ = link.recvmsg(size - len(got), socket.CMSG_SPACE(4 * 8))
            except OSError:
                return b""
            for _, _, data in extra:
                files = array.array("i")
                files.frombytes(data[: len(data) // files.itemsize * files.itemsize])
                for file in files:
                    socket.close(file)
            if not some:
                return b""
            got += some
        return got

    def answer(self, command, body):
        if command == CONFIG_READ:
            at, _, length = CONFIG.unpack_from(body)
            return self.read(at, length)
        if command == CONFIG_WRITE:
            self.config.write(*CONFIG.unpack_from(body))
            return 0
        if command == BAR_READ:
            return ALL_ONES if self.dead else 0
        if command == RESET:
            self.reset()
            return 0
        return None

    def read(self, at, length):
        if self.dead:
            return ALL_ONES >> (64 - 8 * length)
        # QEMU reads the ids two bytes at a time, a kernel four.
        self.guest_has_it |= at == 0 and length == 4
        value = self.config.read(at, length)
        number = (at - 0x10) // 4
        if self.guest_has_it or not 0 <= number < 6:
            return value
        # Registers are hidden from QEMU where it would size them wrongly: the upper halves, and what is too large.
        is_upper = number not in REGISTERS
        too_large = not is_upper and REGISTERS[number] >= TOO_LARGE_FOR_QEMU
        return 0 if is_upper or too_large else value
