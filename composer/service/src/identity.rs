//! Which GPU is which, by what hosts have told: their names laid over what fabrics show, and those that can't be told apart.
//! Pure. A slot is a place, never an identity.

use poolwright_driver::{Learned, same_name};
use poolwright_executor::GpuRecord;
use poolwright_model::id::GpuId;
use poolwright_model::topology::Gpu;
use std::collections::BTreeMap;

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
    let names = [&gpu.uuid, &gpu.serial, &gpu.pcie_serial];
    names.into_iter().flatten().any(|name| same_name(name, wanted))
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

/// What is to be written once somebody has looked at a GPU: it is the one that was seen last, and no other has its UUID.
pub(crate) fn looked_at<'r>(gpu: &GpuId, records: impl Iterator<Item = &'r GpuRecord>) -> Vec<GpuRecord> {
    let records: Vec<&GpuRecord> = records.collect();
    let own = records.iter().find(|record| record.gpu == *gpu);
    let uuid = own.and_then(|own| uuid_of(own));
    let mut changed = Vec::new();
    for record in &records {
        let mut settled = GpuRecord::clone(record);
        if record.gpu == *gpu {
            settled.learned_before = None;
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
