//! Roles that hold in a scope, and the one decision that they are for: whether somebody may change what a request
//! touches.
//!
//! An account's own role holds everywhere. A [`Binding`] adds what a role may do to GPUs, in its scope and nowhere else.
//!
//! Invariant: what nobody can tell the tenant or the fabric of is in no tenant's and no fabric's scope.

use super::{Privilege, Role};
use crate::error::{ErrorCode, ServiceError};
use poolwright_model::id::{FabricId, TenantId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// Where a role holds. As text `pool`, `tenant/NAME` or `fabric/NAME`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(into = "String", try_from = "String")]
pub enum Scope {
    /// All that is composed, whoever has it.
    Pool,
    /// What a tenant wants and holds.
    Tenant(TenantId),
    /// What is bound in a fabric, whoever has it.
    Fabric(FabricId),
}

/// A role that an account has in a scope, beside its own.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Binding {
    pub role: Role,
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub scope: Scope,
}

/// Who asks, and what that account may do where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grants {
    pub account: String,
    pub role: Role,
    pub bindings: Vec<Binding>,
}

/// One thing that a request would change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Touched {
    /// For people: `demand chat`.
    pub what: String,
    /// `None`: nobody's, such as what is attached by name, or the manager's own.
    pub tenant: Option<TenantId>,
    /// Those in which something of it is bound.
    pub fabrics: BTreeSet<FabricId>,
}

/// Bindings that an account may have.
pub const MOST: usize = 64;

impl Grants {
    /// Whether the account may do this wherever it is.
    pub fn everywhere(&self, privilege: Privilege) -> bool {
        self.role.has(privilege)
    }

    /// Whether it may do this in some scope at least.
    pub fn somewhere(&self, privilege: Privilege) -> bool {
        self.everywhere(privilege) || self.scopes(privilege).next().is_some()
    }

    fn scopes(&self, privilege: Privilege) -> impl Iterator<Item = &Scope> {
        let bound = self.bindings.iter();
        bound
            .filter(move |binding| binding.role.has(privilege))
            .map(|binding| &binding.scope)
    }

    /// The decision: all that is touched must lie in a scope in which the account has the privilege.
    ///
    /// # Errors
    /// What does not, and in which scopes the privilege would be enough.
    pub fn judge(&self, privilege: Privilege, touched: &[Touched]) -> Result<(), ServiceError> {
        if self.everywhere(privilege) {
            return Ok(());
        }
        if !self.somewhere(privilege) {
            return Err(self.lacks(privilege, "that", "of any scope"));
        }
        match touched.iter().find(|one| !self.reaches(privilege, one)) {
            None => Ok(()),
            Some(one) => {
                let enough: Vec<String> = one.scopes().map(|scope| scope.to_string()).collect();
                Err(self.lacks(
                    privilege,
                    &one.to_string(),
                    &format!("in {}", enough.join(" or ")),
                ))
            }
        }
    }

    fn reaches(&self, privilege: Privilege, one: &Touched) -> bool {
        let scopes: BTreeSet<&Scope> = self.scopes(privilege).collect();
        let has = |scope: &Scope| scopes.contains(scope);
        let in_fabrics = || {
            let mut all = one.fabrics.iter().map(|fabric| Scope::Fabric(fabric.clone()));
            !one.fabrics.is_empty() && all.all(|fabric| has(&fabric))
        };
        let of_tenant = || one.tenant.clone().map(Scope::Tenant);
        has(&Scope::Pool) || of_tenant().is_some_and(|tenant| has(&tenant)) || in_fabrics()
    }

    fn lacks(&self, privilege: Privilege, what: &str, where_: &str) -> ServiceError {
        let account = &self.account;
        let lacking = format!("{privilege:?} {where_}");
        let bound: Vec<String> = self.bindings.iter().map(Binding::to_string).collect();
        let has = match bound.is_empty() {
            true => format!("the role {}", self.role),
            false => format!("the role {} and {}", self.role, bound.join(", ")),
        };
        let text = format!("{account} may not change {what}: that needs {lacking}, and {account} has {has}");
        ServiceError::new(ErrorCode::Forbidden, text)
            .with_hint(format!(
                "have an administrator do it, or give the role there: poolwright account bind {account}"
            ))
            .with_details(vec![lacking])
    }
}

impl Touched {
    /// The scopes each of which it lies in: several fabrics are one that is not named here.
    fn scopes(&self) -> impl Iterator<Item = Scope> {
        let tenant = self.tenant.clone().map(Scope::Tenant);
        let mut fabrics = self.fabrics.iter().cloned().map(Scope::Fabric);
        let fabric = match (fabrics.next(), fabrics.next()) {
            (Some(only), None) => Some(only),
            _ => None,
        };
        tenant.into_iter().chain(fabric).chain([Scope::Pool])
    }
}

impl fmt::Display for Touched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.tenant {
            Some(tenant) => write!(f, "{} of tenant {tenant}", self.what),
            None => write!(f, "{}, which is no tenant's", self.what),
        }
    }
}

/// Whether an account may have these.
pub(super) fn check(bindings: &[Binding]) -> Result<(), ServiceError> {
    if bindings.len() > MOST {
        let text = format!(
            "an account has at most {MOST} roles in scopes, and not {}",
            bindings.len()
        );
        return Err(ServiceError::bad_request(text).with_hint("bind it to the pool, or use several accounts"));
    }
    let of_gpus = [Role::Operator, Role::Planner];
    match bindings.iter().find(|binding| !of_gpus.contains(&binding.role)) {
        None => Ok(()),
        Some(Binding { role, .. }) => {
            let text = format!("the role {role} can't be bound to a scope: it is not about GPUs alone");
            Err(ServiceError::bad_request(text)
                .with_hint("bind Operator or Planner, or give the account that role everywhere"))
        }
    }
}

impl fmt::Display for Binding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {}", self.role, self.scope)
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pool => f.write_str("pool"),
            Self::Tenant(tenant) => write!(f, "tenant/{tenant}"),
            Self::Fabric(fabric) => write!(f, "fabric/{fabric}"),
        }
    }
}

impl FromStr for Scope {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let none = |why: String| {
            let text: String = text.chars().take(80).collect();
            format!("{text:?} is no scope: {why}; say pool, tenant/NAME or fabric/NAME")
        };
        match text.split_once('/') {
            None if text == "pool" => Ok(Self::Pool),
            Some(("tenant", name)) => name.parse().map(Self::Tenant).map_err(|e| none(e.to_string())),
            Some(("fabric", name)) => name.parse().map(Self::Fabric).map_err(|e| none(e.to_string())),
            _ => Err(none("it is of no kind that there is".to_owned())),
        }
    }
}

impl TryFrom<String> for Scope {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Scope> for String {
    fn from(scope: Scope) -> Self {
        scope.to_string()
    }
}

#[cfg(test)]
mod tests;
