//! Roles that an account has in a scope, which Redfish has no word for: `Oem.Poolwright.Bindings` of the account.

use super::accounts::named_role;
use super::body;
use super::message::Refusal;
use poolwright_service::accounts::{Binding, Scope};
use serde::Deserialize;
use serde_json::{Value, json};

/// What `Oem.Poolwright` says of an account.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
pub(super) struct Ours {
    bindings: Vec<Said>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
pub(super) struct Said {
    role_id: String,
    scope: String,
}

pub(super) fn shown(bindings: &[Binding]) -> Value {
    let one = |Binding { role, scope }: &Binding| json!({ "RoleId": role, "Scope": scope });
    json!({
        "@odata.type": "#PoolwrightManagerAccount.v1_0_0.ManagerAccount",
        "Bindings": bindings.iter().map(one).collect::<Vec<_>>(),
    })
}

/// All bindings that there are to be, as a body has them; none where it says nothing of them.
pub(super) fn read(body: &Value) -> Result<Vec<Binding>, Refusal> {
    let ours: Ours = body::ours(body)?;
    ours.bindings.into_iter().map(one).collect()
}

fn one(said: Said) -> Result<Binding, Refusal> {
    let scope = said.scope.parse::<Scope>();
    Ok(Binding {
        role: named_role(&said.role_id)?,
        scope: scope.map_err(|why| body::misread("Bindings", &why))?,
    })
}
