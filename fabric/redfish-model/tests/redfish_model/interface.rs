//! Actions, collections, type names and error bodies.

use crate::common;
use poolwright_redfish_model::schema;
use poolwright_redfish_model::{
    Action, Collection, CompositionService, ComputerSystem, ComputerSystemActions, ComputerSystemCollection,
    ErrorBody, Extra, Fabric, Message, ODataType, RESOURCES, Ref, Resource,
};
use serde_json::json;

#[test]
fn an_action_is_sent_where_the_service_says() {
    let document = json!({"Actions": {
        "#CompositionService.Compose": {
            "target": "/redfish/v1/CompostionService/Actions/CompositionService.Compose",
            "@Redfish.ActionInfo": "/redfish/v1/CompositionService/ComposeActionInfo",
            "RequestType@Redfish.AllowableValues": ["Preview", "Apply"],
        },
        "#CompositionService.Vendor": {"target": "/v"},
        "Oem": {"#Contoso.Light": {"target": "/l"}},
    }});
    let service: CompositionService = serde_json::from_value(document.clone()).expect("a service");
    let actions = service.actions.clone().expect("it has actions");
    let compose = actions.compose.as_ref().expect("it can compose");
    assert_eq!(
        compose.target.as_deref(),
        Some("/redfish/v1/CompostionService/Actions/CompositionService.Compose")
    );
    assert_eq!(
        compose.action_info.as_deref(),
        Some("/redfish/v1/CompositionService/ComposeActionInfo")
    );
    assert_eq!(
        compose.allowable_values("RequestType"),
        Some(vec!["Preview".to_owned(), "Apply".to_owned()])
    );
    assert_eq!(compose.allowable_values("RequestFormat"), None);
    assert_eq!(
        actions.extra.get::<Action>("#CompositionService.Vendor"),
        Some(Action::at("/v"))
    );
    assert_eq!(
        serde_json::to_value(&service).expect("it can be written"),
        document
    );
}

#[test]
fn an_action_is_offered() {
    let reset = Action::at("/redfish/v1/Systems/1/Actions/ComputerSystem.Reset")
        .with_allowable_values("ResetType", &["On", "ForceOff"]);
    let actions = ComputerSystemActions {
        reset: Some(Box::new(reset)),
        ..Default::default()
    };
    let system = ComputerSystem {
        actions: Some(Box::new(actions)),
        ..Resource::at("/redfish/v1/Systems/1")
    };
    assert_eq!(
        serde_json::to_value(&system).expect("it can be written")["Actions"],
        json!({"#ComputerSystem.Reset": {
            "target": "/redfish/v1/Systems/1/Actions/ComputerSystem.Reset",
            "ResetType@Redfish.AllowableValues": ["On", "ForceOff"],
        }})
    );
}

#[test]
fn collections_have_members_counts_and_pages() {
    let page = json!({
        "Members": [{"@odata.id": "/a"}], "Members@odata.count": 2, "Members@odata.nextLink": "/s?$skip=1",
    });
    let page: ComputerSystemCollection = serde_json::from_value(page).expect("a collection");
    assert_eq!((page.count(), page.next_link()), (Some(2), Some("/s?$skip=1")));
    assert_eq!(page.members(), [Ref::to("/a")]);
    let empty = ComputerSystemCollection::of("/redfish/v1/Systems", "Systems", Vec::new());
    assert_eq!(
        serde_json::to_value(&empty).expect("it can be written"),
        json!({
            "@odata.id": "/redfish/v1/Systems", "@odata.type": "#ComputerSystemCollection.ComputerSystemCollection",
            "Name": "Systems", "Members": [], "Members@odata.count": 0,
        })
    );
    assert_eq!(
        <ComputerSystemCollection as Collection>::Member::ODATA_TYPE,
        ComputerSystem::ODATA_TYPE
    );
}

#[test]
fn type_names_have_parts() {
    for (text, parts) in [
        (
            "#Fabric.v1_3_2.Fabric",
            Some(("Fabric", "Fabric", Some((1, 3, 2)))),
        ),
        (
            "Event.v1_4_0.EventRecord",
            Some(("Event", "EventRecord", Some((1, 4, 0)))),
        ),
        (
            "#FabricCollection.FabricCollection",
            Some(("FabricCollection", "FabricCollection", None)),
        ),
        ("#Fabric.v1_3.Fabric", None),
        ("#Fabric.1_3_2.Fabric", None),
        ("#Fabric.v1_3_2_4.Fabric", None),
        ("#Fabric.v1_3_2.Fabric.More", None),
        ("#Fabric", None),
        ("#Fabric.", None),
        ("", None),
    ] {
        let parts = parts.map(|(namespace, name, version)| ODataType {
            namespace,
            name,
            version,
        });
        assert_eq!(ODataType::parse(text), parts, "{text}");
    }
    assert!(
        schema::by_odata_type("#Fabric.v9_9_9.Fabric")
            .is_some_and(|found| std::ptr::eq(found, Fabric::SCHEMA))
    );
    assert!(schema::by_odata_type("#Contoso.v1_0_0.Contoso").is_none());
}

#[test]
fn tables_are_sorted_and_complete() {
    let types = common::all_types();
    assert!(types.len() > 250, "{} types", types.len());
    for (name, found) in types {
        assert!(
            found
                .properties
                .windows(2)
                .all(|pair| pair[0].name < pair[1].name),
            "{name}"
        );
        let object = (found.empty)();
        assert!(std::ptr::eq(object.schema(), found), "{name}");
        assert!(
            found
                .properties
                .iter()
                .enumerate()
                .all(|(index, _)| object.slot(index).is_some()),
            "{name}"
        );
        assert!(object.slot(found.properties.len()).is_none(), "{name}");
    }
    for resource in RESOURCES {
        let named = resource.odata_type.and_then(schema::by_odata_type);
        assert!(
            named.is_some_and(|named| std::ptr::eq(named, *resource)),
            "{}",
            resource.name
        );
    }
}

#[test]
fn error_bodies_are_read_wherever_the_messages_lie() {
    let message = json!({"MessageId": "Base.1.22.PropertyUnknown", "Message": "No such property.", "MessageArgs": ["X"]});
    for (body, text, unknown) in [
        (
            json!({"error": {"code": "Base.1.22.GeneralError", "message": "m", "@Message.ExtendedInfo": [message]}}),
            Some("No such property."),
            true,
        ),
        (
            json!({"error": {"@Message.ExtendedInfo": message}}),
            Some("No such property."),
            true,
        ),
        (
            json!({"@Message.ExtendedInfo": [message]}),
            Some("No such property."),
            true,
        ),
        (
            json!({"error": {"code": "Base.1.0.PropertyUnknown"}}),
            Some("Base.1.0.PropertyUnknown"),
            true,
        ),
        (
            json!({"error": {"code": 404, "message": "Not found"}}),
            Some("Not found"),
            false,
        ),
        (json!({"error": "Not found"}), None, false),
        (json!({"detail": "Not found"}), None, false),
    ] {
        let error = ErrorBody::read(body.to_string().as_bytes()).expect("an object");
        assert_eq!(
            (error.text().as_deref(), error.has("PropertyUnknown")),
            (text, unknown),
            "{body}"
        );
        assert_eq!(serde_json::to_value(&error).expect("it can be written"), body);
    }
    assert_eq!(ErrorBody::read(b"<html>502 Bad Gateway</html>"), None);
}

#[test]
fn error_bodies_are_written() {
    let message = Message {
        message_id: Some("Base.1.22.PropertyMissing".to_owned()),
        ..Message::default()
    };
    let body = ErrorBody::new("Base.1.22.GeneralError", "See the messages.", vec![message]);
    assert_eq!(
        serde_json::to_value(&body).expect("it can be written"),
        json!({"error": {
            "code": "Base.1.22.GeneralError", "message": "See the messages.",
            "@Message.ExtendedInfo": [{"MessageId": "Base.1.22.PropertyMissing"}],
        }})
    );
}

#[test]
fn extras_compare_as_json() {
    let extra = |text: &str| -> Extra { serde_json::from_str::<Fabric>(text).expect("an object").extra };
    assert_eq!(
        extra(r#"{"X": {"a": 1, "b": 2}, "Y": 1}"#),
        extra(r#"{"Y":1,"X":{"b":2,"a":1}}"#)
    );
    assert_ne!(extra(r#"{"X": 1}"#), extra(r#"{"X": 2}"#));
    assert_ne!(extra(r#"{"X": 1}"#), extra(r#"{"Y": 1}"#));
}
