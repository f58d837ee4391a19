//! What may go wrong, in the order of its numbers. A number stays with its fault.

use super::Row;

/// Shown by tests.
const fn covered(number: u16, fault: &'static str, behaviour: &'static str) -> Row {
    Row {
        number,
        fault,
        behaviour,
        waits_for: None,
    }
}

/// Not shown, or not all of it, before something else is there.
const fn open(number: u16, fault: &'static str, behaviour: &'static str, waits_for: &'static str) -> Row {
    Row {
        number,
        fault,
        behaviour,
        waits_for: Some(waits_for),
    }
}

/// The whole catalogue.
pub const ROWS: [Row; 104] = [
    covered(
        1,
        "The manager is killed at any moment of an operation",
        "The next start carries it on; it ends completed or undone, no GPU is bound twice or lost",
    ),
    covered(
        2,
        "It is killed again while it recovers, twice and more",
        "The same end: a recovery is a run like any other",
    ),
    covered(3, "A step's request is made twice", "One effect"),
    covered(4, "An undo's request is made twice", "One effect"),
    covered(
        5,
        "An undo fails for good",
        "Quarantined: both ends stay held, also after a restart, until `ops resolve`",
    ),
    covered(
        6,
        "A panic in the work at an operation",
        "The process lives, the operation goes on from its journal, others notice nothing",
    ),
    open(
        7,
        "The work at an operation hangs",
        "The watchdog lapses and the service manager restarts the process within 30 s",
        "the watchdog of the service manager",
    ),
    covered(
        8,
        "A manager is stopped for ten lease times, then goes on",
        "It changes nothing any more, and knows it",
    ),
    covered(
        9,
        "Several managers start at once",
        "Each endpoint has one in charge",
    ),
    covered(
        10,
        "Several clients want the same GPU at once",
        "One gets it, the others are told who has it; nothing is half done",
    ),
    covered(
        11,
        "A client asks again because the answer was lost",
        "The same operation, one effect",
    ),
    covered(
        12,
        "A client hangs up in the middle of a request",
        "What it began goes on, and can be looked at",
    ),
    covered(
        13,
        "A request times out and had no effect",
        "Read back, then asked once more",
    ),
    covered(
        14,
        "A request times out and had its effect",
        "Read back, and gone on; not sent again",
    ),
    covered(
        15,
        "The fabric takes a request on as a task that never ends",
        "At the deadline it is read back; Indeterminate, with both ends held, for as long as the task goes on",
    ),
    covered(
        16,
        "The fabric says that it is done, and it is not",
        "Read back, caught, undone",
    ),
    covered(
        17,
        "The fabric restarts without its bindings",
        "Shown as drift within one poll; bound again only where that is the endpoint's policy, and a few at a time",
    ),
    covered(
        18,
        "Somebody else changes the fabric",
        "Shown as drift, wanted against found; never fought over: what is unbound again after three repairs is left alone",
    ),
    covered(
        19,
        "Of several GPUs one can't be bound",
        "All or nothing: those that were bound are unbound again; where a part was asked for they stay, and what is missing is named",
    ),
    covered(
        20,
        "An endpoint's event is lost",
        "The next poll finds what it would have told",
    ),
    covered(
        21,
        "Events come twice, out of order, years late or forged",
        "Each is a reason to look, and nothing else: what it says is not read",
    ),
    covered(
        22,
        "Ten thousand events a second",
        "Many are one hint; an endpoint is asked no more often than it is given time for, and nothing queues",
    ),
    covered(
        23,
        "A BMC is silent for ten minutes",
        "What it told last is shown as stale; composing from it is refused with exit code 6",
    ),
    covered(
        24,
        "A BMC answers with HTML, nothing or garbage",
        "An error that says what it was; the last good data stay",
    ),
    covered(
        25,
        "JSON that breaks off, a length that lies, a connection that ends early",
        "As 24: nothing is taken in part",
    ),
    covered(
        26,
        "A body of 2 GiB, or one without end",
        "Cut at the cap: 8 MiB for a document, 64 KiB for the answer to a write",
    ),
    covered(
        27,
        "JSON nested 100,000 deep, a million keys, numbers beyond all bounds",
        "An error of parsing; no stack overflows",
    ),
    covered(
        28,
        "A compressed body that unpacks to far more",
        "No compression is requested; unrequested gzip is unpacked up to the cap of a plain body",
    ),
    covered(
        29,
        "A BMC that drips a byte at a time",
        "Cut off by the deadline of the whole request; its place is free again",
    ),
    covered(
        30,
        "Clients that drip their requests to the manager",
        "A head that is not whole within 10 s, or a body within 60 s, ends the connection; so many connections of an address and no more; others are served",
    ),
    covered(
        31,
        "A redirect to another host",
        "Not followed; no credentials leave",
    ),
    covered(
        32,
        "A link to another origin, one that climbs, links in a circle",
        "Refused; each place is visited once",
    ),
    covered(
        33,
        "A collection without end, pages in a circle",
        "A cap on pages and members; each page once",
    ),
    covered(
        34,
        "A certificate that is expired, from an unknown authority or for another name",
        "Refused with what is wrong, unless its fingerprint is pinned",
    ),
    covered(
        35,
        "TLS older than 1.2, or a handshake that stalls",
        "Refused; given up at the deadline",
    ),
    covered(
        36,
        "A pinned certificate changes",
        "Refused, with both fingerprints, until somebody pins the new one",
    ),
    covered(
        37,
        "Credentials are refused again and again",
        "Nothing is sent after three refusals in a row, so that no account is locked",
    ),
    covered(
        38,
        "The BMC's session table fills up",
        "One session for all requests, always ended, whatever ends the program",
    ),
    covered(39, "429 or 503 with Retry-After", "Honoured, within the deadline"),
    covered(
        40,
        "A BMC restarts in the middle of an operation",
        "Waited for and tried again; the operation goes on",
    ),
    covered(
        41,
        "Two GPUs claim one identity, or two endpoints one GPU",
        "Both in conflict, and neither is composable",
    ),
    covered(42, "A free GPU is pulled", "Gone within one poll, and told"),
    covered(
        43,
        "An attached GPU is pulled",
        "Its holder is told; nothing is bound to the ghost",
    ),
    covered(
        44,
        "A GPU vanishes without an event of the kernel",
        "Found by comparing host, fabric and driver at each poll",
    ),
    covered(
        45,
        "A GPU falls off the bus (Xid 79)",
        "Taken out of use, counted once however often it is told; the next plan exchanges it",
    ),
    covered(
        46,
        "A host hangs when it is to let go",
        "The fabric is not asked to unbind, unless somebody forces it with a reason",
    ),
    covered(
        47,
        "A GPU is in use when it is to go",
        "Refused, naming process and command, unless somebody forces it with a reason",
    ),
    covered(
        48,
        "A host restarts in the middle of an attach or a detach",
        "Verified again under its new boot; made to let go once more before the unbind",
    ),
    covered(
        49,
        "A host has no room for the GPU's BARs or buses",
        "The attach fails and is undone; the reason names what is short",
    ),
    covered(
        50,
        "A link trains down",
        "Undone below what the host's profile allows; told otherwise",
    ),
    covered(
        51,
        "A flood of correctable PCIe errors",
        "Counted at both ends of the link; above a threshold an hour the GPU is suspect: told, and avoided where another \
         will do",
    ),
    covered(
        52,
        "A fatal PCIe error",
        "The GPU is taken out of use, its neighbours untouched; what contains the port is its hardware",
    ),
    covered(
        53,
        "The clock is set an hour forward or back",
        "Leases don't follow it; a window's work is done once",
    ),
    covered(
        54,
        "Clocks change for summer at a schedule's hour",
        "A time that is skipped or comes twice counts once",
    ),
    covered(
        55,
        "The disk is full, read-only or fails",
        "Changes are refused, reads served, nothing acknowledged that is not kept; it heals by itself",
    ),
    covered(56, "The power goes", "All that was acknowledged is there"),
    covered(
        57,
        "The database is gone, slow or kills its sessions",
        "Changes are refused, reads told from memory and marked; no effect without a commit before it",
    ),
    covered(
        58,
        "The database is an old backup",
        "Only looked at, until an operator has accepted the difference",
    ),
    covered(
        59,
        "An operation is cancelled in the middle of a step",
        "Nothing new begins, and what was done is undone",
    ),
    covered(
        60,
        "An older version meets a newer database",
        "Refused, naming both versions; the database is left as it is",
    ),
    open(
        61,
        "A configuration that can't be read is loaded again",
        "The old one stays",
        "a configuration that is read again",
    ),
    open(
        62,
        "No file descriptors are left",
        "",
        "a test that takes them all",
    ),
    covered(63, "The manager is killed for want of memory", "As 1"),
    open(
        64,
        "The manager reaches its database, and not the BMC",
        "",
        "a network that is cut in tests",
    ),
    open(
        65,
        "A network that is cut in one direction",
        "",
        "a network that is cut in tests",
    ),
    open(66, "A network of IPv6 alone", "", "a network of IPv6 in tests"),
    covered(
        67,
        "A name that can't be resolved",
        "Told apart from a host that does not answer",
    ),
    covered(
        68,
        "The manager's own certificate runs out",
        "Told 30, 7 and 1 day before, in the log and by doctor; one of its own authority is renewed before",
    ),
    open(
        69,
        "The workload scheduler can't be reached at a commit",
        "",
        "the scheduler integration",
    ),
    open(
        70,
        "Plans of two schedules overlap",
        "",
        "a rule for schedules that want the same",
    ),
    covered(
        71,
        "A schedule was missed for days",
        "What should be now is made so, once",
    ),
    covered(
        72,
        "A box gives its GPUs other addresses, or cards are exchanged between slots",
        "The identity at an address is compared before each write and in each read-back; on a mismatch nothing is sent, and \
         the next plan uses the address at which the GPU was observed last",
    ),
    covered(
        73,
        "A demand is deleted while GPUs are held for it, or while an operation composes for it",
        "Refused with the next step; the record goes with the last composition",
    ),
    covered(
        74,
        "A composition is left whose demand has no record",
        "Named once in the log, and by doctor with the command that releases it",
    ),
    covered(
        75,
        "A manager starts with a copied data directory on the same PostgreSQL database",
        "It refuses to serve beside the running original; after the death of the original it waits for outstanding requests",
    ),
    covered(
        76,
        "All hardware, or some of it, stops answering",
        "Logged once, and once more when it answers again; its GPUs count as unreachable, and not as composable or free; \
         /readyz answers 503 while no composable GPU is reachable",
    ),
    covered(
        77,
        "An operator reads in the log what happened to an operation",
        "Its start, failure and end are logged, and its resumption after a crash, with its id in a span",
    ),
    covered(
        78,
        "Requests with wrong or no credentials flood the service",
        "Logged once per client, and after that as one line a minute with the numbers of requests and of paths",
    ),
    covered(
        79,
        "A command detaches more GPUs than intended",
        "It shows the GPUs with their hosts and demands and asks for confirmation; --max-detach refuses more",
    ),
    covered(
        80,
        "The answer to a change is lost, and its command is repeated with the same key",
        "The change is made once, and the second answer has the result of the first",
    ),
    covered(
        81,
        "A host without an agent: the use of its GPUs is not checked",
        "Commands that detach them show it; the log has one line for each host of an operation",
    ),
    covered(
        82,
        "A token, a session or a subscription outlives its account",
        "Each is bound to the account's id and generation: another account of that name, and the same one with another password, role, scope or state, gets none of them",
    ),
    covered(
        83,
        "Passwords are guessed: many at once, at many managers, under invented names, from many addresses",
        "Counted in the store before a password is hashed, by name and source, by source and by account; from a threshold on each further check waits longer",
    ),
    covered(
        84,
        "An account is to be locked out by wrong passwords",
        "Other sources log in as before, certificates always; delays end by themselves, and `poolwright account unlock` ends them on the manager's machine",
    ),
    covered(
        85,
        "An administrator of the API names a file of the manager's machine as a password, an authority or a lab",
        "Refused before it is read, unless it is in the directory of serve --endpoint-files; nothing is sent",
    ),
    covered(
        86,
        "A report and an event, or two reports, race for one event stream",
        "Each is sent once, and the ids of one stream increase",
    ),
    covered(
        87,
        "A key file of the manager is lost, changed, damaged, or readable by every account",
        "The start stops or logs a warning, with the file and the next step; the authority is never replaced by itself",
    ),
    covered(
        88,
        "A certificate of the manager's own authority nears its end",
        "Renewed at the start and while the manager runs; the authority keeps its name and key",
    ),
    covered(
        89,
        "A service redirects to add or remove a trailing slash, compresses its answers, writes its links in other forms or ends \
         a session after each request",
        "Read like any other, with each GPU once; other redirects are refused; `discover` names systems, chassis and \
         processors that it could not read, and exits with 8",
    ),
    covered(
        90,
        "Two GPUs of a board have one serial number, a GPU is shown in several places, or a part of a server as a server",
        "Each GPU is shown once, joined by UUID and PCIe device, without a conflict; a part of a server is no host",
    ),
    covered(
        91,
        "A service refuses the ETag that it gives",
        "Read back; sent once more without If-Match if no other client is logged in, else refused; reported as a quirk",
    ),
    covered(
        92,
        "The NVIDIA driver's library (NVML) is missing, fails, or was not asked on a host whose GPUs its driver drives",
        "Reported as a fault, the GPU is not confirmed; nothing is claimed about persistence mode or visibility",
    ),
    covered(
        93,
        "A GPU is held through a renamed device node, or a process of its host can't be read",
        "Found by its device number; the process is named, and the GPU is free only if the driver's list clears it",
    ),
    covered(
        94,
        "A script must tell a refused certificate, a damaged database and Ctrl-C from a service that is not available",
        "Exit codes 4, 1 and 130, and not 10, which scripts retry; Ctrl-C names `ops wait` and `ops cancel`",
    ),
    covered(
        95,
        "One warning repeats many times",
        "Logged once, and later once more with the number of repetitions",
    ),
    covered(
        96,
        "Two systems are requested under Redfish names that differ only in special characters",
        "They become two demands with ids of their own",
    ),
    covered(
        97,
        "A user names a destination for events that the manager must not reach",
        "Refused with the network or the option that is the rule",
    ),
    covered(
        98,
        "A bit flips in a stored document, in SQLite or in PostgreSQL",
        "An error with the name of the document, and never its content; a counter is repaired at the start; the manager starts, is not ready, and sends nothing while a change could rest on it",
    ),
    covered(
        99,
        "A damaged document has to be recovered",
        "`resume --damaged` repairs one flipped bit. Else the error says how: a backup, or `--discard`, which writes it again from the store and the hardware's state; automation is paused until the GPUs of a composition are adopted",
    ),
    covered(
        100,
        "A bit flips in an operation's document, in its journal, or in the list of open operations",
        "That operation is left alone with all its claims, until it is repaired or ended by `ops resolve`; a damaged journal pauses all others, too. One that is not listed as open is listed again at the start",
    ),
    covered(
        101,
        "A database that an earlier release has left",
        "Opened by this version and every later one, with all documents, journals and events; each row has a checksum from then on",
    ),
    covered(
        102,
        "Clients of others ask for what only a complete Redfish service answers: Ansible's redfish_info with all commands, Sushy's \
         update service, DMTF's rf_logs",
        "Each is answered; log entries have message ids, and a composed system has the name that was asked for",
    ),
    covered(
        103,
        "A newcomer runs the demonstration: its hosts have no agents",
        "It prints no warning",
    ),
    covered(
        104,
        "A service tells the kind of a GPU by PCI ids only, by a text only, or by ids of zero",
        "Matched with a hardware profile; where two kinds share an id the text decides, and nothing is guessed without it",
    ),
];
