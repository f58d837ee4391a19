//! The account service: the one account, and the predefined roles.

use super::document::{collection, enabled, link};
use super::resource::{Writing, uri};
use super::{Done, Problem, Resource, View};
use http::StatusCode;
use poolwright_redfish_model::{
    AccountService, ManagerAccount, ManagerAccountCollection, Role, RoleCollection,
};
use serde_json::{Value, json};

/// DSP0266's predefined roles.
const ROLES: [(&str, &[&str]); 3] = [
    (
        "Administrator",
        &[
            "Login",
            "ConfigureManager",
            "ConfigureUsers",
            "ConfigureSelf",
            "ConfigureComponents",
        ],
    ),
    ("Operator", &["Login", "ConfigureSelf", "ConfigureComponents"]),
    ("ReadOnly", &["Login", "ConfigureSelf"]),
];

pub(crate) fn find(view: &View<'_>, path: &[&str]) -> Option<Resource> {
    let user = view.access.username();
    if path == ["Accounts", user] {
        let own = Resource::of(account(user));
        return Some(own.patch(ManagerAccount::SCHEMA, &["/Password"], set_password));
    }
    let body = match path {
        [] => service(),
        ["Accounts"] => {
            let here = uri("AccountService/Accounts");
            collection(
                here,
                ManagerAccountCollection::ODATA_TYPE,
                "Accounts",
                [account_uri(user)],
            )
        }
        ["Roles"] => {
            let members = ROLES.iter().map(|(id, _)| role_uri(id));
            collection(
                uri("AccountService/Roles"),
                RoleCollection::ODATA_TYPE,
                "Roles",
                members,
            )
        }
        ["Roles", id] => {
            let (id, privileges) = ROLES.iter().find(|(known, _)| known == id)?;
            role(id, privileges)
        }
        _ => return None,
    };
    Some(Resource::of(body))
}

fn set_password(writing: &mut Writing<'_>) -> Result<Done, Problem> {
    let password = writing
        .body
        .get("Password")
        .and_then(Value::as_str)
        .unwrap_or_default();
    if !(8..=20).contains(&password.len()) {
        return Err(Problem::bad("PropertyValueFormatError", &[password, "Password"]));
    }
    let set = writing.access.set_password(password);
    set.map_err(|_| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", &[]))?;
    Ok(Done::Quietly)
}

fn account_uri(user: &str) -> String {
    uri(format_args!("AccountService/Accounts/{user}"))
}

fn role_uri(id: &str) -> String {
    uri(format_args!("AccountService/Roles/{id}"))
}

fn service() -> Value {
    json!({
        "@odata.id": uri("AccountService"),
        "@odata.type": AccountService::ODATA_TYPE,
        "Id": "AccountService",
        "Name": "Account service",
        "ServiceEnabled": true,
        "Status": enabled(),
        "Accounts": link(uri("AccountService/Accounts")),
        "Roles": link(uri("AccountService/Roles")),
    })
}

fn account(user: &str) -> Value {
    json!({
        "@odata.id": account_uri(user),
        "@odata.type": ManagerAccount::ODATA_TYPE,
        "Id": user,
        "Name": "Account",
        "UserName": user,
        "RoleId": "Administrator",
        "AccountTypes": ["Redfish"],
        "Enabled": true,
        "Locked": false,
        "PasswordChangeRequired": false,
        "Links": { "Role": link(role_uri("Administrator")) },
    })
}

fn role(id: &str, privileges: &[&str]) -> Value {
    json!({
        "@odata.id": role_uri(id),
        "@odata.type": Role::ODATA_TYPE,
        "Id": id,
        "Name": format!("Role {id}"),
        "RoleId": id,
        "IsPredefined": true,
        "AssignedPrivileges": privileges,
    })
}
