//! Roles that an account has in a scope, which Redfish has no word for: `Oem.Poolwright.Bindings` of the account.

use super::accounts::named_role;
use super::message::Refusal;
use axum::http::StatusCode;
use poolwright_service::accounts::{Binding, Scope};
use serde_json::{Value, json};

pub(super) fn shown(bindings: &[Binding]) -> Value {
    let one = |Binding { role, scope }: &Binding| json!({ "RoleId": role, "Scope": scope });
    json!({
        "@odata.type": "#PoolwrightManagerAccount.v1_0_0.ManagerAccount",
        "Bindings": bindings.iter().map(one).collect::<Vec<_>>(),
    })
}

/// All bindings that there are to be, out of `Oem`.
pub(super) fn read(oem: &Value) -> Result<Vec<Binding>, Refusal> {
    let Some(listed) = oem["Poolwright"]["Bindings"].as_array() else {
        return Err(wrong("Bindings are missing, or no list"));
    };
    listed.iter().map(one).collect()
}

fn one(said: &Value) -> Result<Binding, Refusal> {
    let text = |name: &str| {
        let text = said[name].as_str();
        text.ok_or_else(|| wrong(&format!("a binding has no {name}")))
    };
    Ok(Binding {
        role: named_role(text("RoleId")?)?,
        scope: text("Scope")?.parse::<Scope>().map_err(|why| wrong(&why))?,
    })
}

fn wrong(why: &str) -> Refusal {
    let next = "Oem.Poolwright.Bindings is a list of {\"RoleId\": \"Operator\", \"Scope\": \"tenant/NAME\"}; Scope is pool, tenant/NAME or fabric/NAME.";
    let status = StatusCode::BAD_REQUEST;
    Refusal::new(
        status,
        "PropertyValueFormatError",
        &["…", "Oem"],
        format!("Oem.Poolwright: {why}."),
        next,
    )
}
