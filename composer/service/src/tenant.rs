//! What a tenant is promised: GPUs that it gets before others get more than is promised to them, the most that it may
//! hold, and its share of what is wanted by several. It binds whatever is wanted for a tenant: what is composed now, what
//! calendars want, and jobs. What an operator attaches by name is for no tenant.

use crate::error::ServiceError;
use poolwright_model::id::TenantId;
use poolwright_planner::Share;
use poolwright_store::Stored;
use serde::{Deserialize, Serialize};

/// A tenant without a document is promised nothing, and may hold what it likes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Tenant {
    pub id: TenantId,
    /// GPUs.
    #[serde(default)]
    pub guaranteed: u32,
    /// GPUs that it holds at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most: Option<u32>,
    /// Against that of others.
    #[serde(default = "one")]
    pub weight: u32,
}

fn one() -> u32 {
    1
}

/// The largest weight of a share.
const MOST_WEIGHT: u32 = 1000;

impl Stored for Tenant {
    const KIND: &'static str = "tenant";
    fn id(&self) -> &str {
        self.id.as_str()
    }
}

/// What is to be promised; what is not said stays.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct NewTenant {
    pub guaranteed: Option<u32>,
    /// 0: as many as there are.
    pub most: Option<u32>,
    pub weight: Option<u32>,
}

/// What a tenant is promised, and what it has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TenantStatus {
    #[serde(flatten)]
    pub tenant: Tenant,
    /// GPUs.
    pub holds: u32,
    /// Jobs.
    pub waiting: u32,
}

impl Tenant {
    pub fn new(id: TenantId) -> Self {
        Self {
            id,
            guaranteed: 0,
            most: None,
            weight: 1,
        }
    }

    pub(crate) fn share(&self) -> Share {
        Share {
            guaranteed: self.guaranteed,
            most: self.most,
            weight: self.weight,
        }
    }

    /// With these instead, in a pool of so many GPUs of which so many are promised to others.
    pub(crate) fn with(mut self, new: &NewTenant, pool: u32, others: u32) -> Result<Self, ServiceError> {
        self.guaranteed = new.guaranteed.unwrap_or(self.guaranteed);
        self.most = match new.most {
            Some(0) => None,
            Some(most) => Some(most),
            None => self.most,
        };
        self.weight = new.weight.unwrap_or(self.weight);
        let Self {
            id,
            guaranteed,
            most,
            weight,
        } = &self;
        let refused = |what: String, hint: &str| {
            Err(ServiceError::bad_request(format!("tenant {id}: {what}")).with_hint(hint))
        };
        if *weight == 0 || *weight > MOST_WEIGHT {
            return refused(
                format!("a weight of {weight}; allowed: 1 to {MOST_WEIGHT}"),
                "a tenant with weight 2 gets twice as much as one with 1, where both want more than there is",
            );
        }
        if let Some(most) = most.filter(|most| most < guaranteed) {
            return refused(
                format!("{guaranteed} GPUs are guaranteed, and it may hold {most} at most"),
                "let most be larger, or 0 for as many as there are",
            );
        }
        if *guaranteed > 0 && guaranteed.saturating_add(others) > pool {
            return refused(
                format!(
                    "{guaranteed} GPUs can't be guaranteed: the pool has {pool}, and {others} are guaranteed to others"
                ),
                "guarantee less, or take it from others first: poolwright tenant list",
            );
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_guaranteed_than_there_is() {
        let lab = Tenant::new(TenantId::from_lossy("lab"));
        let set = |new: NewTenant| lab.clone().with(&new, 16, 10);
        let guaranteed = |count| NewTenant {
            guaranteed: Some(count),
            ..NewTenant::default()
        };
        assert_eq!(set(guaranteed(6)).unwrap().guaranteed, 6);
        let refused = set(guaranteed(7)).unwrap_err();
        assert!(
            refused.message.contains("10 are guaranteed to others"),
            "{refused}"
        );
        assert!(set(guaranteed(u32::MAX)).is_err());
        let contrary = NewTenant {
            most: Some(5),
            ..guaranteed(6)
        };
        assert!(set(contrary).unwrap_err().message.contains("5 at most"));
        let weightless = NewTenant {
            weight: Some(0),
            ..NewTenant::default()
        };
        assert!(set(weightless).is_err());
    }
}
