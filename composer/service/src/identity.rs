//! Which GPU is which, by what hosts have told: their names laid over what fabrics show, and those that can't be told apart.
//! Pure. A slot is a place, never an identity.

use poolwright_driver::Learned;
use poolwright_executor::GpuRecord;
use poolwright_model::id::GpuId;
use poolwright_model::identity::{GpuIdentity, bare_name, same_name};
use poolwright_model::topology::Gpu;
use std::collections::{BTreeMap, HashMap};

/// Adds the names that a host had for a GPU to those that its fabric has.
pub(crate) fn name(gpu: &mut Gpu, learned: &Learned) {
    let add = |known: &mut Option<String>, learned: &Option<String>| {
        if known.is_none() {
            known.clone_from(learned);
        }
    };
    add(&mut gpu.uuid, &learned.uuid);
    add(&mut gpu.serial, &learned.board_serial);
    add(&mut gpu.pcie_serial, &learned.pcie_serial);
}

/// Whether somebody who names a GPU like this may mean this one.
pub(crate) fn is_called(gpu: &Gpu, wanted: &str) -> bool {
    names(gpu).any(|name| same_name(name, wanted))
}

fn names(gpu: &Gpu) -> impl Iterator<Item = &String> {
    [&gpu.uuid, &gpu.serial, &gpu.pcie_serial].into_iter().flatten()
}

/// GPUs by each of their names; `None` for a name of several GPUs, such as the serial number of their board.
pub(crate) struct ByName<'g>(HashMap<String, Option<&'g Gpu>>);

impl<'g> ByName<'g> {
    pub fn of(gpus: &'g [Gpu]) -> Self {
        let mut by_name: HashMap<String, Option<&Gpu>> = HashMap::new();
        for gpu in gpus {
            for name in names(gpu) {
                let known = by_name.entry(bare_name(name)).or_insert(Some(gpu));
                *known = known.filter(|known| known.id == gpu.id);
            }
        }
        Self(by_name)
    }

    /// The only GPU with one of these names. A GPU with another UUID is another GPU of the same board.
    pub fn find(&self, names: &[String]) -> Option<&'g Gpu> {
        let is_uuid = |name: &&String| GpuIdentity::named(name).uuid.is_some();
        let uuids: Vec<&String> = names.iter().filter(is_uuid).collect();
        let may_be = |gpu: &&Gpu| match &gpu.uuid {
            Some(own) if !uuids.is_empty() => uuids.iter().any(|uuid| same_name(uuid, own)),
            _ => true,
        };
        let mut named = names.iter().filter_map(|name| *self.0.get(&bare_name(name))?);
        named.find(may_be)
    }
}

/// GPUs that are another than before, or that have the UUID of another one, and how.
pub(crate) fn mistaken<'r>(records: impl Iterator<Item = &'r GpuRecord>) -> BTreeMap<GpuId, String> {
    let mut mistaken = BTreeMap::new();
    let mut by_uuid: BTreeMap<String, Vec<&GpuRecord>> = BTreeMap::new();
    for record in records {
        if let Some(why) = record.is_another() {
            mistaken.insert(record.gpu.clone(), why);
        }
        if let Some(uuid) = uuid_of(record) {
            by_uuid.entry(uuid.to_ascii_lowercase()).or_default().push(record);
        }
    }
    for (uuid, mut records) in by_uuid.into_iter().filter(|(_, records)| records.len() > 1) {
        records.sort_by(|a, b| a.gpu.cmp(&b.gpu));
        let names: Vec<&str> = records.iter().map(|record| record.gpu.as_str()).collect();
        let why = format!("hosts saw UUID {uuid} as {}", names.join(" and as "));
        for record in records {
            mistaken.entry(record.gpu.clone()).or_insert_with(|| why.clone());
        }
    }
    mistaken
}

/// What is to be written once somebody has looked at a GPU: it is the one that was seen last, nothing is left on it of what
/// its last host had set, and no other has its UUID.
pub(crate) fn looked_at<'r>(gpu: &GpuId, records: impl Iterator<Item = &'r GpuRecord>) -> Vec<GpuRecord> {
    let records: Vec<&GpuRecord> = records.collect();
    let own = records.iter().find(|record| record.gpu == *gpu);
    let uuid = own.and_then(|own| uuid_of(own));
    let mut changed = Vec::new();
    for record in &records {
        let mut settled = GpuRecord::clone(record);
        if record.gpu == *gpu {
            settled.learned_before = None;
            settled.left.clear();
        } else if uuid_of(record)
            .zip(uuid)
            .is_some_and(|(one, other)| same_name(one, other))
        {
            (settled.learned, settled.learned_before) = (None, None);
        }
        if settled != **record {
            changed.push(settled);
        }
    }
    changed
}

fn uuid_of(record: &GpuRecord) -> Option<&str> {
    record.learned.as_ref()?.uuid.as_deref()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn record(gpu: &str, uuid: &str, before: Option<&str>) -> GpuRecord {
        let told = |uuid: &str| {
            json!({"gpu": gpu, "address": "0000:01:00.0", "slot": "1", "pcie_serial": null, "board_serial": null,
                   "uuid": uuid, "link": null, "best_link": null})
        };
        serde_json::from_value(json!({
            "gpu": gpu, "unit": gpu, "state": "free", "clean": true, "host": null, "host_port": null, "composition": null,
            "tenant": null, "operation": null, "since": "2026-03-02T12:00:00Z",
            "learned": told(uuid), "learned_before": before.map(told),
        }))
        .unwrap()
    }

    fn gpu(id: &str, uuid: &str, serial: &str) -> Gpu {
        serde_json::from_value(json!({
            "id": id, "vendor": null, "model": null, "memory_bytes": null, "uuid": uuid, "serial": serial,
            "pci_ids": null, "chassis": null, "slot": null, "functions": [], "partitions": [], "ports": [],
            "unit": id, "composable": true, "why_not": null, "host": null, "host_port": null, "state": "free",
            "health": "ok",
        }))
        .unwrap()
    }

    fn names(mistaken: &BTreeMap<GpuId, String>) -> Vec<&str> {
        mistaken.keys().map(GpuId::as_str).collect()
    }

    #[test]
    fn two_gpus_with_one_uuid_are_both_told_and_so_is_one_that_became_another() {
        let all = [
            record("a", "GPU-1", None),
            record("b", "gpu-1", None),
            record("c", "GPU-2", Some("GPU-3")),
            record("d", "GPU-4", None),
        ];
        let found = mistaken(all.iter());
        assert_eq!(names(&found), ["a", "b", "c"]);
        assert_eq!(found[&all[2].gpu], "its UUID is GPU-2, and was GPU-3");
        assert!(found[&all[0].gpu].contains("as a and as b"), "{found:?}");
    }

    #[test]
    fn once_somebody_has_looked_a_gpu_is_clean_and_another_with_its_name_is_as_it_was() {
        let mut all = [record("a", "GPU-1", Some("GPU-0")), record("b", "GPU-1", None)];
        for one in &mut all {
            one.left.push("MIG could not be set back to off".to_owned());
        }
        let settled = looked_at(&all[0].gpu, all.iter());
        let left: Vec<_> = settled
            .iter()
            .map(|one| (one.gpu.as_str(), one.left.len()))
            .collect();
        assert_eq!(left, [("a", 0), ("b", 1)]);
    }

    #[test]
    fn a_gpu_is_found_by_each_of_its_names_however_they_are_written() {
        let all = [gpu("a", "0E2B-7F0C", "11-22"), gpu("b", "0e2b-7f0d", "3344")];
        let by_name = ByName::of(&all);
        let found = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            by_name.find(&names).map(|gpu| gpu.id.as_str())
        };
        assert_eq!(found(&["GPU-0e2b-7f0c"]), Some("a"));
        assert_eq!(found(&["1122"]), Some("a"));
        assert_eq!(found(&["nobody's", "33-44"]), Some("b"));
        assert_eq!((found(&[]), found(&["GPU-0"])), (None, None));
    }

    /// Fault 90: an agent reports a GPU of a board.
    #[test]
    fn a_serial_number_of_a_board_names_no_gpu() {
        let uuid = |last: u8| format!("GPU-00000000-0000-0000-0000-0000000000{last:02x}");
        let gpu = |id: &str, last: u8| Gpu {
            id: GpuId::from_lossy(id),
            uuid: Some(uuid(last)),
            ..gpu(id, "", "BOARD1")
        };
        let all = [gpu("a", 10), gpu("b", 11)];
        let of = |gpus: &[Gpu], names: &[String]| ByName::of(gpus).find(names).map(|gpu| gpu.id.clone());
        let reported = |last: u8| ["board1".to_owned(), uuid(last)];
        assert_eq!(of(&all, &reported(11)), Some(all[1].id.clone()));
        assert_eq!(of(&all, &reported(12)), None);
        assert_eq!(of(&all, &["BOARD1".to_owned()]), None);
        // The pool knows only one GPU of the board.
        assert_eq!(of(&all[..1], &reported(11)), None);
        assert_eq!(of(&all[..1], &["BOARD1".to_owned()]), Some(all[0].id.clone()));
    }

    #[test]
    fn once_somebody_has_looked_nothing_is_mistaken_any_more() {
        for looked in ["a", "b", "c"] {
            let mut all = vec![
                record("a", "GPU-1", None),
                record("b", "GPU-1", None),
                record("c", "GPU-2", Some("GPU-3")),
            ];
            let gpu = GpuId::from_lossy(looked);
            for settled in looked_at(&gpu, all.clone().iter()) {
                let at = all.iter().position(|record| record.gpu == settled.gpu).unwrap();
                all[at] = settled;
            }
            let expected: &[&str] = if looked == "c" { &["a", "b"] } else { &["c"] };
            assert_eq!(names(&mistaken(all.iter())), expected, "looked at {looked}");
        }
    }
}
