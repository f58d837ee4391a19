//! Another password for our account.

use crate::southbound::service::{DEADLINE, DONE, Documents, Reply, Service};
use poolwright_driver::{ErrorKind, Fabric};
use serde_json::{Value, json};

const ROOT: &str = "/redfish/v1";
const SERVICE: &str = "/redfish/v1/AccountService";
const ACCOUNTS: &str = "/redfish/v1/AccountService/Accounts";
const OTHER: &str = "/redfish/v1/AccountService/Accounts/1";
const OWN: &str = "/redfish/v1/AccountService/Accounts/2";

async fn service(answer: impl Fn(&Value) -> Reply + Send + 'static) -> Service {
    let mut documents = Documents::default();
    for (path, name) in [(OTHER, "root"), (OWN, "pool")] {
        let account = json!({"@odata.type": "#ManagerAccount.v1_10_0.ManagerAccount", "Name": "Account", "UserName": name});
        documents.put(path, account);
    }
    documents.collection(ACCOUNTS, "ManagerAccount", &[OTHER, OWN]);
    documents.put(
        SERVICE,
        json!({"@odata.type": "#AccountService.v1_15_0.AccountService", "Name": "Accounts",
               "Accounts": {"@odata.id": ACCOUNTS}}),
    );
    let service = Service::start(documents, move |_, sent| answer(&sent.body)).await;
    service.with(|documents| {
        let mut root = documents.get(ROOT).clone();
        root["AccountService"] = json!({"@odata.id": SERVICE});
        documents.put(ROOT, root);
    });
    service
}

#[tokio::test]
async fn our_own_account_is_changed_and_no_other() {
    let service = service(|_| DONE).await;
    service
        .driver
        .change_password("pool", "new", DEADLINE)
        .await
        .unwrap();
    let sent = service.sent();
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].line(), format!("PATCH {OWN}"));
    assert_eq!(sent[0].body, json!({"Password": "new"}));
}

#[tokio::test]
async fn an_account_that_is_not_there_is_not_made() {
    let service = service(|_| DONE).await;
    let error = service
        .driver
        .change_password("nobody", "new", DEADLINE)
        .await
        .unwrap_err();
    assert_eq!(error.kind, ErrorKind::CannotTell, "{error}");
    assert!(service.sent().is_empty());
}

/// A service that refuses a value repeats it in its message; what is told of that does not.
#[tokio::test]
async fn no_error_holds_the_password() {
    let refuses = |body: &Value| {
        let message = format!(
            "The value {} for the property Password is too simple.",
            body["Password"]
        );
        let error = json!({"error": {"code": "Base.1.0.PropertyValueFormatError", "message": message}});
        Reply::Status(400, Some(error))
    };
    let service = service(refuses).await;
    let error = service
        .driver
        .change_password("pool", "Very-Secret1", DEADLINE)
        .await
        .unwrap_err();
    assert_eq!(error.kind, ErrorKind::NoEffect, "{error}");
    assert!(error.message.contains("too simple"), "{error}");
    assert!(!format!("{error:?}").contains("Very-Secret1"), "{error:?}");
}
