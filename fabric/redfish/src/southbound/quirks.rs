//! Named deviations of products from the standard, each with what was seen and where.
//!
//! A quirk is told by what a service shows, never by its vendor's name: the same firmware runs under many
//! names, and the next version may do it right.

use poolwright_driver::Quirk;

/// Everything that is known.
pub const ALL: [Quirk; 11] = [
    MEMBERS_COUNT_LIES,
    EXPAND_NOT_HONOURED,
    ADDRESS_OF_ANOTHER,
    ACTION_TARGET_ELSEWHERE,
    NO_SESSION_SERVICE,
    GPU_MEMORY_BY_LINK,
    PCI_IDS_BLANK,
    CLASS_CODE_MISSING,
    PORT_SPEED_PER_LANE,
    BASEBOARD_AS_SYSTEM,
    ETAG_REFUSED,
];

pub const MEMBERS_COUNT_LIES: Quirk = Quirk {
    name: "members-count-lies",
    what: "Members@odata.count differs from what the collection lists; the list is believed",
    evidence: "DMTF composability example: Systems says 2 and lists 5; compose-action example: ResourceBlocks says 14 and lists 13, one of them twice",
};

pub const EXPAND_NOT_HONOURED: Quirk = Quirk {
    name: "expand-not-honoured",
    what: "the service root advertises $expand, answers are not expanded; members are read one by one",
    evidence: "recorded trees behind a static server, which ignores the query",
};

pub const ADDRESS_OF_ANOTHER: Quirk = Quirk {
    name: "address-of-another",
    what: "a resource says that it has another's address in @odata.id; the link that led to it is believed",
    evidence: "DMTF composability example: Chassis/ComposableModule7 calls itself ComposableModule6",
};

pub const ACTION_TARGET_ELSEWHERE: Quirk = Quirk {
    name: "action-target-elsewhere",
    what: "an action's target does not lie below its resource; it is used as given and never built",
    evidence: "DMTF compose-action example: CompositionService.Compose at /redfish/v1/CompostionService",
};

pub const NO_SESSION_SERVICE: Quirk = Quirk {
    name: "no-session-service",
    what: "there is no SessionService; every request carries Basic authentication",
    evidence: "sushy-emulator 2.2.0 (OpenStack sushy-tools): SessionService answers 404",
};

pub const GPU_MEMORY_BY_LINK: Quirk = Quirk {
    name: "gpu-memory-by-link",
    what: "a GPU's MemorySummary has no TotalMemorySizeMiB; its size is summed from Links.Memory",
    evidence: "NVIDIA HGX H100 baseboard firmware in a DGX H100: CapacityMiB 81559 of GPU_SXM_1_DRAM_0",
};

pub const PCI_IDS_BLANK: Quirk = Quirk {
    name: "pci-ids-blank",
    what: "a GPU's PCIe function has vendor and device id 0x0000; they are taken as unknown",
    evidence: "Supermicro SYS-821GE-TNHR: PCIeDevices/GPU1 to GPU8",
};

pub const CLASS_CODE_MISSING: Quirk = Quirk {
    name: "class-code-missing",
    what: "a GPU's PCIe function has no ClassCode; it is told by its processor, its DeviceClass or its text",
    evidence: "NVIDIA HGX H100 baseboard firmware; Supermicro SYS-821GE-TNHR (DeviceClass DisplayController only)",
};

pub const PORT_SPEED_PER_LANE: Quirk = Quirk {
    name: "port-speed-per-lane",
    what: "CurrentSpeedGbps of a PCIe port is the speed of one lane, not of the port",
    evidence: "NVIDIA HGX H100 baseboard firmware: 32 Gbit/s with ActiveWidth 16 on a Gen5 x16 port; the DMTF CXL example gives 512 for the same link",
};

pub const BASEBOARD_AS_SYSTEM: Quirk = Quirk {
    name: "baseboard-as-system",
    what: "a part of a server (GPU baseboard, storage controller, DPU) is shown as a ComputerSystem of its own; it is not counted as a host",
    evidence: "DGX H100 and GB200 NVL: Systems/HGX_Baseboard_0 beside the server's own system",
};

pub const ETAG_REFUSED: Quirk = Quirk {
    name: "etag-refused",
    what: "a write with the ETag that the service gives is refused (412), although the resource is unchanged; the write is sent once more without If-Match if no other client is logged in",
    evidence: "services that put quotes around an ETag twice, or give weak ones and compare them as strong (RFC 9110, If-Match)",
};

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_quirk_has_a_name_of_its_own_and_evidence() {
        let names: BTreeSet<_> = ALL.iter().map(|quirk| quirk.name).collect();
        assert_eq!(names.len(), ALL.len());
        for quirk in ALL {
            assert!(
                quirk.name.chars().all(|c| c.is_ascii_lowercase() || c == '-'),
                "{}",
                quirk.name
            );
            assert!(
                !quirk.what.is_empty() && !quirk.evidence.is_empty(),
                "{}",
                quirk.name
            );
        }
    }
}
