//! The keys of a problem's file: one that nothing reads, such as a mistyped one, must not pass for one that was left
//! out. A test holds the tables against a file that has every key.

use crate::failure::Failure;
use crate::output::say;
use poolwright_model::nearest::{did_you_mean, nearest};
use poolwright_planner::horizon::{cps1, extended};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// More leads than these are not told one by one.
const TOLD: usize = 3;

/// What an object of the file may have.
struct Keys {
    /// In every schema.
    plain: &'static [&'static str],
    /// In the longer one alone.
    longer: &'static [&'static str],
    /// Keys whose values are objects or lists of such.
    inner: &'static [(&'static str, &'static Keys)],
}

const PROBLEM: Keys = Keys {
    // The last three say where a problem comes from.
    plain: &[
        "schema",
        "horizon_slots",
        "slot_s",
        "hosts",
        "gpus",
        "demands",
        "costs",
        "name",
        "source",
        "hop_cost",
    ],
    longer: &["tenants", "hops", "switches", "hold"],
    inner: &[
        ("hosts", &HOST),
        ("gpus", &GPU),
        ("demands", &DEMAND),
        ("costs", &COSTS),
        (
            "tenants",
            &longer(&["id", "most_gpus", "guaranteed_gpus", "weight"]),
        ),
        ("hops", &longer(&["from", "to", "hops"])),
        ("switches", &longer(&["id", "uplink_gpus"])),
    ],
};
const HOST: Keys = Keys {
    plain: &["id", "slots", "switch", "host_on_w", "host_idle_w"],
    longer: &["closed", "reach", "bar_gib", "hold"],
    inner: &[("closed", &longer(&["start", "end"]))],
};
const GPU: Keys = Keys {
    plain: &[
        "id",
        "type",
        "mem_gb",
        "switch",
        "active_w",
        "idle_w",
        "attached_to",
    ],
    longer: &["pinned", "bar_gib"],
    inner: &[],
};
const DEMAND: Keys = Keys {
    plain: &["id", "tenant", "start", "end", "gpus", "min_mem_gb", "weight"],
    longer: &[
        "hosts",
        "types",
        "lead",
        "one_switch",
        "priority",
        "options",
        "parts",
        "running",
        "preemptible",
        "phases",
    ],
    inner: &[
        ("options", &OPTION),
        ("parts", &PARTS),
        ("running", &longer(&["host", "gpus"])),
        ("preemptible", &longer(&["notice", "stop"])),
        ("phases", &PHASE),
    ],
};
const PHASE: Keys = Keys {
    plain: &[],
    longer: &["slots", "gpus", "min_mem_gb", "types", "options", "parts"],
    inner: &[("options", &OPTION), ("parts", &PARTS)],
};
const OPTION: Keys = longer(&["gpus", "min_mem_gb", "types", "penalty"]);
const PARTS: Keys = longer(&["least", "most", "same_host_ok"]);
const COSTS: Keys = Keys {
    plain: &[
        "unmet_per_gpu_slot",
        "attach",
        "detach",
        "host_fire_up",
        "hop_per_gpu_slot",
        "energy_per_kwh",
    ],
    longer: &["split_per_slot", "unfair_per_gpu_slot"],
    inner: &[],
};

const fn longer(longer: &'static [&'static str]) -> Keys {
    Keys {
        plain: &[],
        longer,
        inner: &[],
    }
}

/// Refuses keys that the longer schema does not have, and those that it has in a file of the schema cps-1, where they
/// would do nothing. Notes of others may stand beside what cps-1 has: it is told that they are not read.
pub fn judge(file: &Path, problem: &Value) -> Result<(), Failure> {
    let is_longer = match problem["schema"].as_str() {
        Some("cps-1") => false,
        Some(extended::SCHEMA) => true,
        // What it is instead is told by whoever reads it.
        _ => return Ok(()),
    };
    let mut reader = Reader {
        is_longer,
        not_read: BTreeMap::new(),
    };
    let judged = reader.object(problem, "", &PROBLEM);
    judged.map_err(|failure| Failure {
        message: format!("{}: {}", file.display(), failure.message),
        ..failure
    })?;
    for ((_, key), (at, count, meant)) in reader.not_read {
        let others = match count {
            0 => String::new(),
            count => format!(", nor are {count} others of that name"),
        };
        let question = meant.map_or_else(String::new, |question| format!("; {question}"));
        say(&format!(
            "{at}{key} is not read{others}: cps-1 has no such key{question}"
        ));
    }
    Ok(())
}

struct Reader {
    is_longer: bool,
    /// What cps-1 does not have, by the list that it is in and its name: where it is first, how many more there are, and
    /// what may have been meant.
    not_read: BTreeMap<(String, String), (String, usize, Option<String>)>,
}

impl Reader {
    fn object(&mut self, object: &Value, at: &str, keys: &Keys) -> Result<(), Failure> {
        let Some(object) = object.as_object() else {
            return Ok(());
        };
        for (key, value) in object {
            let is = |known: &[&str]| known.contains(&key.as_str());
            if is(keys.longer) && !self.is_longer {
                return Err(
                    Failure::usage(format!("{at}{key}: the schema cps-1 has no such key")).with_hint(
                        format!(
                            "write \"schema\": \"{}\", which has it, or leave it out",
                            extended::SCHEMA
                        ),
                    ),
                );
            }
            if !is(keys.plain) && !is(keys.longer) {
                self.unknown(key, at, keys)?;
            }
            let Some((_, inner)) = keys.inner.iter().find(|(name, _)| name == key) else {
                continue;
            };
            match value.as_array() {
                Some(list) => {
                    for (index, entry) in list.iter().enumerate() {
                        let id = entry["id"]
                            .as_str()
                            .map_or_else(String::new, |id| format!(" ({id})"));
                        self.object(entry, &format!("{at}{key}[{index}]{id}."), inner)?;
                    }
                }
                None => self.object(value, &format!("{at}{key}."), inner)?,
            }
        }
        Ok(())
    }

    fn unknown(&mut self, key: &str, at: &str, keys: &Keys) -> Result<(), Failure> {
        let longer = if self.is_longer { keys.longer } else { &[] };
        let known = keys.plain.iter().chain(longer).copied();
        let meant = did_you_mean(&nearest(key, known.clone()));
        if self.is_longer {
            let known: Vec<&str> = known.collect();
            let hint =
                meant.unwrap_or_else(|| format!("leave it out; what may stand there: {}", known.join(", ")));
            let message = format!("{at}{key}: the schema {} has no such key", extended::SCHEMA);
            return Err(Failure::usage(message).with_hint(hint));
        }
        let list = at.split('[').next().unwrap_or_default().to_owned();
        let seen = self.not_read.entry((list, key.to_owned()));
        seen.and_modify(|(_, more, _)| *more += 1)
            .or_insert_with(|| (at.to_owned(), 0, meant));
        Ok(())
    }
}

/// Tells which demands want their GPUs before the horizon begins: what of that would be past is left out.
pub fn tell_leads(instance: &cps1::Instance, extension: &extended::Extension) {
    let demands = instance.demands.iter().zip(&extension.demands).enumerate();
    let cut =
        demands.filter(|(_, (demand, more))| i64::try_from(more.lead).is_ok_and(|lead| lead > demand.start));
    let mut cut: Vec<String> = cut
        .map(|(index, (demand, more))| {
            format!(
                "demands[{index}] ({}).lead: {} slots before its start at {} the horizon has not begun; its GPUs are there from slot 0 on",
                demand.id, more.lead, demand.start
            )
        })
        .collect();
    let others = cut.len().saturating_sub(TOLD);
    cut.truncate(TOLD);
    if others > 0 {
        cut.push(format!("and so of {others} others"));
    }
    cut.iter().for_each(|line| say(line));
}
