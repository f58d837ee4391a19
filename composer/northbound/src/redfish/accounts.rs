//! Accounts and roles.

use super::bindings;
use super::message::Refusal;
use super::names::Names;
use super::wire::matches_tag;
use super::{Redfish, body, created, shown_as, status, uri};
use crate::auth::Asker;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use poolwright_redfish_model::{
    AccountService, AccountServiceBasicAuthState, Collection, ManagerAccount, ManagerAccountAccountTypes,
    ManagerAccountCollection, ManagerAccountLinks, PrivilegesPrivilegeType, Ref, Resource, RoleCollection,
};
use poolwright_service::ServiceError;
use poolwright_service::access::AccessRules;
use poolwright_service::accounts::{AccountChange, AccountShown, NewAccount, Privilege, Role, password};
use serde_json::{Value, json};
use std::collections::BTreeSet;

pub(crate) fn service(rules: &AccessRules) -> AccountService {
    AccountService {
        id: Some("AccountService".into()),
        name: Some("Accounts".into()),
        service_enabled: Some(true),
        status: status::enabled(),
        http_basic_auth: Some(AccountServiceBasicAuthState::Enabled),
        min_password_length: i64::try_from(password::SHORTEST).ok(),
        max_password_length: i64::try_from(password::LONGEST).ok(),
        account_lockout_threshold: Some(rules.wrong_passwords.into()),
        account_lockout_duration: Some(rules.locked_s.into()),
        account_lockout_counter_reset_after: Some(rules.forgotten_s.into()),
        accounts: Some(uri::link("AccountService/Accounts")),
        roles: Some(uri::link("AccountService/Roles")),
        privilege_map: Some(uri::link(super::privileges::REGISTRY)),
        ..AccountService::at(uri::at("AccountService"))
    }
}

fn place(name: &str) -> String {
    uri::at(&format!("AccountService/Accounts/{name}"))
}

pub(crate) fn all(accounts: &[AccountShown]) -> ManagerAccountCollection {
    let names = Names::of(accounts.iter().map(|account| account.name.as_str()));
    let members = uri::links(names.iter().map(place));
    ManagerAccountCollection::of(uri::at("AccountService/Accounts"), "Accounts", members)
}

/// An account. Its tag changes with each change, also with one of the password, which is never shown.
pub(crate) fn one(account: &AccountShown) -> Result<Value, Refusal> {
    let name = &account.name;
    let resource = ManagerAccount {
        id: Some(name.clone()),
        name: Some(format!("Account {name}")),
        user_name: Some(name.clone()),
        role_id: Some(account.role.to_string()),
        enabled: Some(account.enabled),
        locked: Some(account.locked),
        password_change_required: Some(account.must_change_password),
        account_types: Some(vec![ManagerAccountAccountTypes::Redfish]),
        links: Some(Box::new(ManagerAccountLinks {
            role: Some(Ref::to(role_at(account.role.as_str()))),
            ..ManagerAccountLinks::default()
        })),
        ..ManagerAccount::at(place(name))
    };
    let mut written = shown_as(&resource, account.revision)?;
    // Every answer has it (DSP0268), and none says what it is.
    written["Password"] = Value::Null;
    if !account.bindings.is_empty() {
        written["Oem"]["Poolwright"] = bindings::shown(&account.bindings);
    }
    Ok(written)
}

fn role_at(name: &str) -> String {
    uri::at(&format!("AccountService/Roles/{name}"))
}

pub(crate) fn roles() -> RoleCollection {
    let members = uri::links(Role::ALL.map(|role| role_at(role.as_str())));
    RoleCollection::of(uri::at("AccountService/Roles"), "Roles", members)
}

pub(crate) fn role(name: &str) -> Option<poolwright_redfish_model::Role> {
    let role = Role::named(name)?;
    let (ours, standard): (Vec<Privilege>, Vec<Privilege>) = role
        .privileges()
        .iter()
        .copied()
        .partition(|privilege| privilege.is_ours());
    let standard = standard.iter();
    let standard = standard.map(|privilege| PrivilegesPrivilegeType::from(format!("{privilege:?}").as_str()));
    let ours = ours.iter().map(|privilege| format!("{privilege:?}"));
    Some(poolwright_redfish_model::Role {
        id: Some(name.into()),
        name: Some(format!("Role {name}")),
        role_id: Some(name.into()),
        is_predefined: Some(true),
        assigned_privileges: Some(standard.collect()),
        oem_privileges: Some(ours.collect()),
        ..poolwright_redfish_model::Role::at(role_at(name))
    })
}

/// What may be said of an account.
const UNDERSTOOD: [&str; 7] = [
    "UserName",
    "Password",
    "RoleId",
    "Enabled",
    "PasswordChangeRequired",
    "AccountTypes",
    "Oem/Poolwright",
];
/// And what of it may be changed.
const CHANGEABLE: [&str; 6] = [
    "Password",
    "RoleId",
    "Enabled",
    "PasswordChangeRequired",
    "Locked",
    "Oem/Poolwright",
];

/// POST to the accounts.
pub(crate) async fn add(redfish: &Redfish, body: &Value) -> Result<Response, Refusal> {
    body::create(ManagerAccount::SCHEMA, &UNDERSTOOD, body)?;
    if !body["AccountTypes"].is_null() && body["AccountTypes"] != json!(["Redfish"]) {
        let text = "An account is for Redfish and the JSON API together.";
        let args = ["…", "AccountTypes"];
        let (status, id) = (StatusCode::BAD_REQUEST, "PropertyValueNotInList");
        let next = "Leave it out, or say [\"Redfish\"].";
        return Err(Refusal::new(status, id, &args, text, next).related("AccountTypes"));
    }
    let text = |name: &str| match body[name].as_str() {
        Some(text) => Ok(text.to_owned()),
        None => Err(Refusal::missing(name)),
    };
    let flag = |name: &str, otherwise: bool| body[name].as_bool().unwrap_or(otherwise);
    let new = NewAccount {
        name: text("UserName")?,
        password: text("Password")?,
        role: named_role(&text("RoleId")?)?,
        bindings: bindings::read(body)?,
        enabled: flag("Enabled", true),
        must_change_password: flag("PasswordChangeRequired", false),
    };
    let account = redfish.api.accounts.add(new).await?;
    created(&place(&account.name), one(&account)?)
}

pub(super) fn named_role(name: &str) -> Result<Role, Refusal> {
    Role::named(name).ok_or_else(|| {
        let text = format!("There is no role {name:?}.");
        let roles = Role::ALL.map(Role::as_str).join(", ");
        let next = format!("Say one of {roles}.");
        Refusal::new(
            StatusCode::BAD_REQUEST,
            "PropertyValueNotInList",
            &[name, "RoleId"],
            text,
            &next,
        )
    })
}

/// PATCH of an account. What can be changed is; what can't is told beside it (DSP0266, "PATCH (update)").
pub(crate) async fn change(
    redfish: &Redfish,
    asker: &Asker,
    name: &str,
    headers: &HeaderMap,
    body: &Value,
    own: bool,
) -> Result<Response, Refusal> {
    let wrong = body::violations_of_update(ManagerAccount::SCHEMA, &CHANGEABLE, body);
    let mut refusals: Vec<Refusal> = match wrong.is_empty() {
        true => Vec::new(),
        false => vec![Refusal::violations(&wrong)],
    };
    let wrong: BTreeSet<&str> = wrong
        .iter()
        .filter_map(|wrong| wrong.path.split('/').nth(1))
        .collect();
    let mut change = AccountChange {
        seen: seen(redfish, name, headers).await?,
        session: asker.session.clone(),
        ..AccountChange::default()
    };
    let mut said = 0;
    for (name, value) in body.as_object().into_iter().flatten() {
        if name.contains('@') || wrong.contains(body::escaped(name).as_str()) {
            continue;
        }
        // Of one's own account, without the right to change others', only the password.
        if own && name != "Password" {
            refusals.push(Refusal::not_writable(name));
            continue;
        }
        let applied = match name.as_str() {
            "Oem" => bindings::read(body).map(|all| change.bindings = Some(all)),
            name => apply(&mut change, name, value),
        };
        match applied {
            Ok(()) => said += 1,
            Err(refusal) => refusals.push(refusal),
        }
    }
    if said == 0 {
        return Err(Refusal::joined(refusals).unwrap_or_else(Refusal::nothing_to_do));
    }
    let account = redfish.api.accounts.change(name, change).await?;
    let mut shown = one(&account)?;
    let mut headers = HeaderMap::new();
    super::put(
        &mut headers,
        header::ETAG,
        shown["@odata.etag"].as_str().unwrap_or_default(),
    );
    if let Some(refused) = Refusal::joined(refusals) {
        shown["@Message.ExtendedInfo"] = json!(refused.messages());
    }
    Ok((headers, axum::Json(shown)).into_response())
}

fn apply(change: &mut AccountChange, name: &str, value: &Value) -> Result<(), Refusal> {
    match (name, value) {
        ("Password", Value::String(password)) => change.password = Some(password.clone()),
        ("RoleId", Value::String(role)) => change.role = Some(named_role(role)?),
        ("Enabled", Value::Bool(enabled)) => change.enabled = Some(*enabled),
        ("PasswordChangeRequired", Value::Bool(must)) => change.must_change_password = Some(*must),
        // An account is locked by wrong passwords alone.
        ("Locked", Value::Bool(false)) => change.unlock = true,
        _ => {
            // What was said may be a password.
            let text = format!("{name} can't be that.");
            let args = ["…", name];
            let status = StatusCode::BAD_REQUEST;
            return Err(Refusal::new(
                status,
                "PropertyValueTypeError",
                &args,
                text,
                "See the schema.",
            ));
        }
    }
    Ok(())
}

pub(crate) async fn remove(redfish: &Redfish, name: &str, headers: &HeaderMap) -> Result<Response, Refusal> {
    let seen = seen(redfish, name, headers).await?;
    redfish.api.accounts.remove(name, seen).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// The revision that a client has seen who says so: of several with the same tag one is heard.
async fn seen(redfish: &Redfish, name: &str, headers: &HeaderMap) -> Result<Option<u64>, Refusal> {
    if !headers.contains_key(header::IF_MATCH) {
        return Ok(None);
    }
    let Some(account) = find(redfish, name).await? else {
        return Ok(None);
    };
    let shown = one(&account)?;
    let tag = shown["@odata.etag"].as_str().unwrap_or_default();
    match matches_tag(headers, header::IF_MATCH, tag) {
        true => Ok(Some(account.revision)),
        false => Err(Refusal::changed_meanwhile(&place(name))),
    }
}

/// The account of this name.
pub(crate) async fn find(redfish: &Redfish, name: &str) -> Result<Option<AccountShown>, ServiceError> {
    redfish.api.accounts.one(name).await
}
