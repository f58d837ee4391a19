//! Lighting what shows where a GPU sits, at services of several makes.

use crate::southbound::service::{DEADLINE, DONE, Documents, Reply, Service, links};
use poolwright_driver::{ErrorKind, Fabric, Whereabouts};
use serde_json::{Value, json};

const ROOT: &str = "/redfish/v1";
const CHASSIS: &str = "/redfish/v1/Chassis";
const BOX: &str = "/redfish/v1/Chassis/Box";
const SLOTS: &str = "/redfish/v1/Chassis/Box/PCIeSlots";
const DEVICE: &str = "/redfish/v1/Chassis/Box/PCIeDevices/GPU2";

/// A box with three slots, of which the second holds a GPU.
async fn service(
    device: Value,
    slot: Value,
    on_patch: impl FnMut(&mut Documents, &Value) -> Reply + Send + 'static,
) -> Service {
    let mut documents = Documents::default();
    let mut shown = json!({"@odata.type": "#PCIeDevice.v1_17_0.PCIeDevice", "Name": "GPU"});
    merge(&mut shown, &device);
    documents.put(DEVICE, shown);
    let slots = (1..=3).map(|number| {
        let label = json!({"PartLocation": {"ServiceLabel": format!("Slot {number}")}});
        let mut one = json!({"SlotType": "FullLength", "Location": label});
        merge(&mut one, &slot);
        one
    });
    let slots: Vec<Value> = slots.collect();
    documents.put(
        SLOTS,
        json!({"@odata.type": "#PCIeSlots.v1_6_1.PCIeSlots", "Name": "Slots", "Slots": slots}),
    );
    documents.put(
        BOX,
        json!({"@odata.type": "#Chassis.v1_25_0.Chassis", "Name": "Box", "PCIeSlots": {"@odata.id": SLOTS},
            "Links": {"PCIeDevices": links(&[DEVICE])}}),
    );
    documents.collection(CHASSIS, "Chassis", &[BOX]);
    let mut on_patch = on_patch;
    let service = Service::start(documents, move |documents, sent| on_patch(documents, &sent.body)).await;
    service.with(|documents| {
        let mut root = documents.get(ROOT).clone();
        root["Chassis"] = json!({"@odata.id": CHASSIS});
        documents.put(ROOT, root);
    });
    service
}

fn merge(into: &mut Value, from: &Value) {
    for (name, value) in from.as_object().unwrap() {
        into[name] = value.clone();
    }
}

fn shows(lit: Value) -> Value {
    json!({ "LocationIndicatorActive": lit })
}

fn there() -> Whereabouts {
    Whereabouts {
        locator: Some(DEVICE.to_owned()),
        chassis: Some("Box".to_owned()),
        slot: Some("Slot 2".to_owned()),
        serial: None,
    }
}

/// The same, where the device showed this serial number when it was seen.
fn it() -> Whereabouts {
    Whereabouts {
        serial: Some("S-1".to_owned()),
        ..there()
    }
}

/// Switches the locators of the device and of the slots as requested.
fn switch(documents: &mut Documents, body: &Value) -> Reply {
    if let Some(lit) = body.get("LocationIndicatorActive") {
        documents.set(DEVICE, "/LocationIndicatorActive", lit.clone());
    }
    for (index, slot) in body["Slots"].as_array().into_iter().flatten().enumerate() {
        if let Some(lit) = slot.get("LocationIndicatorActive") {
            let light = format!("/Slots/{index}/LocationIndicatorActive");
            documents.set(SLOTS, &light, lit.clone());
        }
    }
    DONE
}

#[tokio::test]
async fn the_device_is_lit_by_one_conditional_write_and_not_again_while_it_is() {
    for unlit in [json!(false), json!(null)] {
        let service = service(shows(unlit), json!({}), |documents, body| {
            documents.set(
                DEVICE,
                "/LocationIndicatorActive",
                body["LocationIndicatorActive"].clone(),
            );
            DONE
        })
        .await;
        let etag = service.with(|documents| documents.etag(DEVICE));
        service.driver.locate(&there(), true, DEADLINE).await.unwrap();
        service.driver.locate(&there(), true, DEADLINE).await.unwrap();
        let sent = service.sent();
        assert_eq!(sent.len(), 1);
        assert_eq!(sent[0].line(), format!("PATCH {DEVICE}"));
        assert_eq!(sent[0].if_match.as_ref(), Some(&etag));
        assert_eq!(sent[0].body, shows(json!(true)));
        service.driver.locate(&there(), false, DEADLINE).await.unwrap();
        assert_eq!(service.sent()[1].body, shows(json!(false)));
    }
}

/// Members that are left as they are have to be named, too (DSP0266, PATCH on array properties).
#[tokio::test]
async fn of_a_device_that_has_no_light_or_is_gone_the_slot_is_lit_and_no_other() {
    for is_gone in [false, true] {
        let service = service(json!({}), shows(json!(false)), |documents, body| {
            for (index, slot) in body["Slots"].as_array().unwrap().iter().enumerate() {
                if let Some(lit) = slot.get("LocationIndicatorActive") {
                    documents.set(
                        SLOTS,
                        &format!("/Slots/{index}/LocationIndicatorActive"),
                        lit.clone(),
                    );
                }
            }
            DONE
        })
        .await;
        if is_gone {
            service.with(|documents| documents.remove(DEVICE));
        }
        service.driver.locate(&there(), true, DEADLINE).await.unwrap();
        let sent = service.sent();
        assert_eq!(sent.len(), 1);
        assert_eq!(sent[0].line(), format!("PATCH {SLOTS}"));
        assert_eq!(sent[0].body, json!({"Slots": [{}, shows(json!(true)), {}]}));
    }
}

#[tokio::test]
async fn where_there_is_no_light_or_nobody_knows_which_nothing_is_sent() {
    let dark = service(json!({}), json!({}), |_, _| DONE).await;
    let lit = service(json!({}), shows(json!(false)), |_, _| DONE).await;
    let at = |chassis: &str, slot: &str| Whereabouts {
        locator: None,
        chassis: Some(chassis.to_owned()),
        slot: Some(slot.to_owned()),
        serial: None,
    };
    for (service, at) in [
        (&dark, there()),
        (&lit, at("Box", "Slot 7")),
        (&lit, at("Crate", "Slot 2")),
        (&lit, Whereabouts::default()),
    ] {
        let refused = service.driver.locate(&at, true, DEADLINE).await.unwrap_err();
        assert_eq!(refused.kind, ErrorKind::CannotTell, "{at:?}: {refused}");
        assert!(service.sent().is_empty());
    }
}

#[tokio::test]
async fn a_yes_that_is_not_seen_is_not_believed_and_a_refusal_is_not_sent_again() {
    let liar = service(shows(json!(false)), json!({}), |_, _| DONE).await;
    let error = liar.driver.locate(&there(), true, DEADLINE).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::OutcomeUnknown, "{error}");
    let refuses = service(shows(json!(false)), json!({}), |_, _| Reply::Status(405, None)).await;
    refuses.driver.locate(&there(), true, DEADLINE).await.unwrap_err();
    assert_eq!(refuses.sent().len(), 1);
}

/// A device with a light and this serial number.
fn device(serial: &str) -> Value {
    json!({"LocationIndicatorActive": false, "SerialNumber": serial})
}

/// What the second slot says of who sits in it.
fn in_slot(documents: &mut Documents, says: &Value) {
    documents.set(SLOTS, "/Slots/1", {
        let mut slot = documents.get(SLOTS)["Slots"][1].clone();
        merge(&mut slot, says);
        slot
    });
}

#[tokio::test]
async fn what_shows_the_serial_number_that_it_had_or_none_is_lit() {
    for shown in ["S-1", "s-1", "", "N/A"] {
        let service = service(device(shown), json!({}), switch).await;
        service.driver.locate(&it(), true, DEADLINE).await.unwrap();
        assert_eq!(service.sent()[0].line(), format!("PATCH {DEVICE}"), "{shown}");
    }
}

/// Another GPU has replaced it since the last poll.
#[tokio::test]
async fn another_one_in_its_place_is_not_lit_for_it() {
    const OTHER: &str = "/redfish/v1/Chassis/Box/PCIeDevices/GPU7";
    let holds = |path: &str| json!({"Links": {"PCIeDevice": links(&[path])}});
    for (slot, why) in [
        (json!({}), "nobody says who sits in its slot"),
        (holds(DEVICE), "the other sits in its slot"),
        (holds(OTHER), "a third sits in its slot"),
    ] {
        let service = service(device("S-2"), shows(json!(false)), switch).await;
        service.with(|documents| {
            documents.put(OTHER, json!({"Name": "GPU", "SerialNumber": "S-3"}));
            in_slot(documents, &slot);
        });
        let refused = service.driver.locate(&it(), true, DEADLINE).await.unwrap_err();
        assert_eq!(refused.kind, ErrorKind::CannotTell, "{why}: {refused}");
        assert!(
            refused.message.contains("another one is where it was seen"),
            "{why}: {refused}"
        );
        assert!(service.sent().is_empty(), "{why}");
    }
    // It is gone, and another one sits in its slot under another name.
    let service = service(device("S-1"), shows(json!(false)), switch).await;
    service.with(|documents| {
        documents.remove(DEVICE);
        documents.put(OTHER, json!({"Name": "GPU", "SerialNumber": "S-3"}));
        in_slot(documents, &holds(OTHER));
    });
    let refused = service.driver.locate(&it(), true, DEADLINE).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::CannotTell, "{refused}");
    assert!(service.sent().is_empty());
}

/// Its service has given its name to another one; or it was taken out, and what bears its name sits elsewhere.
#[tokio::test]
async fn where_its_name_is_another_s_by_now_its_slot_is_lit_that_holds_it_or_nobody() {
    const RENAMED: &str = "/redfish/v1/Chassis/Box/PCIeDevices/GPU7";
    for slot in [
        json!({"Links": {"PCIeDevice": links(&[RENAMED])}}),
        json!({"Status": {"State": "Absent"}}),
    ] {
        let service = service(device("S-2"), shows(json!(false)), switch).await;
        service.with(|documents| {
            documents.put(RENAMED, json!({"Name": "GPU", "SerialNumber": "S-1"}));
            in_slot(documents, &slot);
        });
        service.driver.locate(&it(), true, DEADLINE).await.unwrap();
        let sent = service.sent();
        assert_eq!(sent[0].line(), format!("PATCH {SLOTS}"));
        assert_eq!(sent[0].body, json!({"Slots": [{}, shows(json!(true)), {}]}));
    }
}

/// A locator at another GPU may have been lit by hand for that one.
#[tokio::test]
async fn what_shows_its_serial_number_or_none_is_put_out_and_another_one_s_light_is_left() {
    for (shown, is_put_out) in [("S-1", true), ("", true), ("S-2", false)] {
        let lit = json!({"LocationIndicatorActive": true, "SerialNumber": shown});
        let service = service(lit, json!({}), switch).await;
        let done = service.driver.locate(&it(), false, DEADLINE).await;
        match is_put_out {
            true => assert_eq!(service.sent()[0].body, shows(json!(false)), "{shown}"),
            false => {
                let refused = done.unwrap_err();
                assert_eq!(refused.kind, ErrorKind::CannotTell, "{refused}");
                assert!(service.sent().is_empty());
            }
        }
    }
}

/// The GPU was removed; its slot is still lit, and is empty or holds another GPU.
#[tokio::test]
async fn the_light_of_a_slot_is_put_out_where_nobody_else_sits_there() {
    const OTHER: &str = "/redfish/v1/Chassis/Box/PCIeDevices/GPU7";
    for (slot, is_put_out) in [
        (json!({"Status": {"State": "Absent"}}), true),
        (json!({"Links": {"PCIeDevice": links(&[OTHER])}}), false),
    ] {
        let service = service(device("S-1"), shows(json!(true)), switch).await;
        service.with(|documents| {
            documents.remove(DEVICE);
            documents.put(OTHER, json!({"Name": "GPU", "SerialNumber": "S-3"}));
            in_slot(documents, &slot);
        });
        let done = service.driver.locate(&it(), false, DEADLINE).await;
        assert_eq!(done.is_ok(), is_put_out, "{slot}: {done:?}");
        assert_eq!(service.sent().len(), usize::from(is_put_out), "{slot}");
    }
}
