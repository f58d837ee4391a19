//! Who may ask.

use super::names::Names;
use super::{status, uri};
use poolwright_redfish_model::{
    AccountService, AccountServiceBasicAuthState, Collection, ManagerAccount, ManagerAccountAccountTypes,
    ManagerAccountCollection, ManagerAccountLinks, PrivilegesPrivilegeType, Ref, Resource, Role,
    RoleCollection,
};

/// The roles that Redfish predefines (DSP0266, "Roles"), and what each may do.
const ROLES: [(&str, &[PrivilegesPrivilegeType]); 3] = {
    use PrivilegesPrivilegeType::{
        ConfigureComponents, ConfigureManager, ConfigureSelf, ConfigureUsers, Login,
    };
    [
        (
            "Administrator",
            &[
                Login,
                ConfigureManager,
                ConfigureUsers,
                ConfigureComponents,
                ConfigureSelf,
            ],
        ),
        ("Operator", &[Login, ConfigureComponents, ConfigureSelf]),
        ("ReadOnly", &[Login, ConfigureSelf]),
    ]
};

pub(crate) fn service() -> AccountService {
    AccountService {
        id: Some("AccountService".into()),
        name: Some("Accounts".into()),
        service_enabled: Some(true),
        status: status::enabled(),
        http_basic_auth: Some(AccountServiceBasicAuthState::Enabled),
        accounts: Some(uri::link("AccountService/Accounts")),
        roles: Some(uri::link("AccountService/Roles")),
        ..AccountService::at(uri::at("AccountService"))
    }
}

fn place(name: &str) -> String {
    uri::at(&format!("AccountService/Accounts/{name}"))
}

pub(crate) fn all(accounts: &[String]) -> ManagerAccountCollection {
    let names = Names::of(accounts.iter().map(String::as_str));
    let members = uri::links(names.iter().map(place));
    ManagerAccountCollection::of(uri::at("AccountService/Accounts"), "Accounts", members)
}

pub(crate) fn one(accounts: &[String], name: &str) -> Option<ManagerAccount> {
    let names = Names::of(accounts.iter().map(String::as_str));
    let account = accounts.get(names.find(name)?)?;
    Some(ManagerAccount {
        id: Some(name.into()),
        name: Some(format!("Account {account}")),
        user_name: Some(account.clone()),
        role_id: Some("Administrator".into()),
        enabled: Some(true),
        locked: Some(false),
        password_change_required: Some(false),
        account_types: Some(vec![ManagerAccountAccountTypes::Redfish]),
        links: Some(Box::new(ManagerAccountLinks {
            role: Some(Ref::to(role_at("Administrator"))),
            ..ManagerAccountLinks::default()
        })),
        ..ManagerAccount::at(place(name))
    })
}

fn role_at(name: &str) -> String {
    uri::at(&format!("AccountService/Roles/{name}"))
}

pub(crate) fn roles() -> RoleCollection {
    let members = uri::links(ROLES.iter().map(|(name, _)| role_at(name)));
    RoleCollection::of(uri::at("AccountService/Roles"), "Roles", members)
}

pub(crate) fn role(name: &str) -> Option<Role> {
    let (name, privileges) = ROLES.iter().find(|(role, _)| *role == name)?;
    Some(Role {
        id: Some((*name).into()),
        name: Some(format!("Role {name}")),
        role_id: Some((*name).into()),
        is_predefined: Some(true),
        assigned_privileges: Some(privileges.to_vec()),
        ..Role::at(role_at(name))
    })
}
