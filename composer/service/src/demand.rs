//! What a tenant wants, as it was asked for and as it is kept.

use crate::error::{ErrorCode, ServiceError};
use poolwright_model::id::{DemandId, OperationId, ScheduleId, TenantId};
use poolwright_model::profile::Profiles;
use poolwright_model::units::Bytes;
use poolwright_planner::Demand;
use poolwright_sizing::need::{Need, Task};
use poolwright_store::Stored;
use serde::{Deserialize, Serialize};

/// A demand as people and programs write it. Either a model with a task, or GPUs by count.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DemandSpec {
    /// Its name from now on.
    pub id: DemandId,
    #[serde(default = "default_tenant")]
    pub tenant: TenantId,
    /// Higher is served first.
    #[serde(default)]
    pub priority: i32,
    /// A model of the catalogue, or a size such as `70B`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<Task>,
    /// Tokens of one request, or of one training sequence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<u64>,
    /// Requests at once; for serving only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u64>,
    /// How weights are stored, such as `bf16`, `fp8`, `int4`; for serving only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weights: Option<String>,
    /// How many GPUs, where no model is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<u32>,
    /// Only this kind: the name of a hardware profile, or a model text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Each GPU has at least this much memory; for GPUs by count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_memory: Option<Bytes>,
}

pub fn default_tenant() -> TenantId {
    TenantId::from_lossy("default")
}

/// A demand as it is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DemandRecord {
    pub spec: DemandSpec,
    /// What sizing made of it when it came; the planner takes it from here, so that a demand that is
    /// served does not move because the pool has changed.
    pub demand: Demand,
    /// The schedule that made it. It is wanted only while that schedule's window is open.
    #[serde(default)]
    pub schedule: Option<ScheduleId>,
    /// The operation on whose end it depends whether the demand is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<Pending>,
}

/// A demand that an operation has in hand. Plans leave it alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pending {
    /// Kept if it is served.
    Composing(OperationId),
    /// Kept if it can't be let go of.
    Releasing(OperationId),
}

impl Pending {
    pub fn operation(&self) -> &OperationId {
        match self {
            Self::Composing(operation) | Self::Releasing(operation) => operation,
        }
    }
}

impl Stored for DemandRecord {
    const KIND: &'static str = "demand";
    fn id(&self) -> &str {
        self.spec.id.as_str()
    }
}

/// A kind of GPU and how many of it there are to choose from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolKind {
    /// The name of its hardware profile.
    pub kind: String,
    pub count: u32,
}

impl DemandSpec {
    /// What it comes to in GPUs, chosen from the kinds in the pool.
    pub fn need(&self, pool: &[PoolKind], slot_limit: Option<u32>) -> Result<Need, ServiceError> {
        match (&self.model, self.gpus) {
            (Some(model), None) => crate::size::need_of_model(self, model, pool, slot_limit),
            (None, Some(count)) => self.need_of_gpus(count),
            (Some(_), Some(_)) => Err(ServiceError::bad_request(format!(
                "demand {} names a model and a number of GPUs; give one of them",
                self.id
            ))
            .with_hint("leave out gpus to let the model decide, or leave out model to take just that many")),
            (None, None) => Err(ServiceError::bad_request(format!(
                "demand {} names neither a model nor a number of GPUs",
                self.id
            ))
            .with_hint("give model and task, such as model = \"70B\" and task = \"infer\", or gpus = 4")),
        }
    }

    fn need_of_gpus(&self, count: u32) -> Result<Need, ServiceError> {
        if count == 0 || count > 65_536 {
            return Err(ServiceError::bad_request(format!(
                "demand {}: gpus is {count}; allowed: 1 to 65536",
                self.id
            )));
        }
        let mut need = match &self.kind {
            Some(kind) => Need::of_kind(profile_name(kind)?, count),
            None => Need::of_memory(count, self.min_memory.unwrap_or_default()),
        };
        if let (Some(_), Some(least)) = (&self.kind, self.min_memory) {
            need.alternatives
                .iter_mut()
                .for_each(|set| set.min_memory_per_gpu = least);
        }
        Ok(need.spanning(true))
    }
}

/// The hardware profile that people mean by `kind`.
pub(crate) fn profile_name(kind: &str) -> Result<String, ServiceError> {
    let found = Profiles::builtin().named(kind);
    found.map(|kind| kind.name.clone()).map_err(|unknown| {
        ServiceError::new(ErrorCode::NotFound, unknown.to_string()).with_hint(unknown.hint())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn need(json: serde_json::Value) -> Result<Need, ServiceError> {
        let spec: DemandSpec = serde_json::from_value(json).unwrap();
        let kind = Profiles::builtin()
            .all()
            .iter()
            .find(|kind| kind.name.starts_with("h100"))
            .unwrap();
        spec.need(
            &[PoolKind {
                kind: kind.name.clone(),
                count: 16,
            }],
            Some(8),
        )
    }

    #[test]
    fn a_model_is_sized_on_the_kinds_in_the_pool() {
        let need = need(serde_json::json!({"id": "chat", "model": "8B", "task": "infer"})).unwrap();
        assert_eq!(need.alternatives[0].count, 1);
        assert!(
            need.alternatives[0]
                .kind
                .as_deref()
                .is_some_and(|kind| kind.starts_with("h100"))
        );
        assert!(!need.explanation.is_empty());
    }

    #[test]
    fn gpus_are_taken_as_asked() {
        let need = need(serde_json::json!({"id": "x", "gpus": 3, "min_memory": 42_949_672_960u64})).unwrap();
        assert_eq!(
            (
                need.alternatives[0].count,
                need.alternatives[0].min_memory_per_gpu.gib()
            ),
            (3, 40.0)
        );
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_a_hint() {
        let error = |json| need(json).unwrap_err();
        for (json, word) in [
            (serde_json::json!({"id": "x"}), "neither"),
            (
                serde_json::json!({"id": "x", "model": "8B", "gpus": 1}),
                "one of them",
            ),
            (serde_json::json!({"id": "x", "gpus": 0}), "1 to 65536"),
            (
                serde_json::json!({"id": "x", "gpus": 1, "kind": "voodoo2"}),
                "voodoo2",
            ),
            (
                serde_json::json!({"id": "x", "model": "lama-3", "task": "infer"}),
                "lama-3",
            ),
            (
                serde_json::json!({"id": "x", "model": "8B", "task": "full", "concurrency": 3}),
                "concurrency",
            ),
            (
                serde_json::json!({"id": "x", "model": "5T", "task": "full"}),
                "fits nowhere",
            ),
        ] {
            let error = error(json);
            assert!(error.message.contains(word), "{error:?}");
        }
        assert!(
            serde_json::from_value::<DemandSpec>(serde_json::json!({"id": "x", "gpu": 1})).is_err(),
            "a typo is refused"
        );
    }
}
