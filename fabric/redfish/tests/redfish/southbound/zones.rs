//! Endpoints in a zone: `PATCH` of the whole list (H3 Falcon's published call: one zone a host port, its
//! device endpoints in `Links.Endpoints`), or the actions of DSP2046.

use crate::southbound::service::{
    DEADLINE, DONE, Documents, OWN_SESSION, Reply, SESSIONS, Sent, Service, links, point,
};
use poolwright_driver::{Bound, DriverError, ErrorKind, Fabric};
use poolwright_model::control::{ControlPoint, ControlStyle};
use serde_json::{Value, json};

const FABRIC: &str = "/redfish/v1/Fabrics/PCIe";
const HOST: &str = "/redfish/v1/Fabrics/PCIe/Endpoints/Host1";
const OTHER_HOST: &str = "/redfish/v1/Fabrics/PCIe/Endpoints/Host2";
const GPU: &str = "/redfish/v1/Fabrics/PCIe/Endpoints/GPU1";
const GPU2: &str = "/redfish/v1/Fabrics/PCIe/Endpoints/GPU2";
const ZONE: &str = "/redfish/v1/Fabrics/PCIe/Zones/1";
const OTHER_ZONE: &str = "/redfish/v1/Fabrics/PCIe/Zones/2";
const MEMBERS: &str = "/Links/Endpoints";

fn unit(address: &str) -> ControlPoint {
    point(ControlStyle::Zones, address)
}

/// Two host ports with their zones, two GPUs in none. Endpoints don't say in which zones they are.
fn rack() -> Documents {
    let mut documents = Documents::default();
    documents.collection("/redfish/v1/Fabrics", "Fabric", &[FABRIC]);
    documents.put(
        FABRIC,
        json!({"@odata.type": "#Fabric.v1_3_2.Fabric", "FabricType": "PCIe",
            "Endpoints": {"@odata.id": format!("{FABRIC}/Endpoints")}, "Zones": {"@odata.id": format!("{FABRIC}/Zones")}}),
    );
    documents.collection(&format!("{FABRIC}/Zones"), "Zone", &[ZONE, OTHER_ZONE]);
    for (zone, host) in [(ZONE, HOST), (OTHER_ZONE, OTHER_HOST)] {
        documents.put(
            zone,
            json!({"@odata.type": "#Zone.v1_6_3.Zone", "ZoneType": "ZoneOfEndpoints", "Links": {"Endpoints": links(&[host])}}),
        );
    }
    for endpoint in [HOST, OTHER_HOST, GPU, GPU2] {
        documents.put(
            endpoint,
            json!({"@odata.type": "#Endpoint.v1_8_2.Endpoint", "Links": {}}),
        );
    }
    documents
}

fn with_actions(mut documents: Documents) -> Documents {
    for zone in [ZONE, OTHER_ZONE] {
        let mut document = documents.get(zone).clone();
        // As a misbuilt service might have it: the target is to be used as given.
        document["Actions"] = json!({
            "#Zone.AddEndpoint": {"target": format!("{zone}/Actions/Zone.AddEndpoint")},
            "#Zone.RemoveEndpoint": {"target": format!("{zone}/Akshuns/Remove")}});
        documents.put(zone, document);
    }
    documents
}

/// Does what a PATCH of a zone says, if its ETag still holds.
fn patch(documents: &mut Documents, sent: &Sent) -> Reply {
    if sent
        .if_match
        .as_ref()
        .is_some_and(|etag| *etag != documents.etag(&sent.path))
    {
        return Reply::Status(
            412,
            Some(json!({"error": {"code": "Base.1.18.PreconditionFailed"}})),
        );
    }
    documents.set(&sent.path, MEMBERS, sent.body["Links"]["Endpoints"].clone());
    DONE
}

fn members(service: &Service, zone: &str) -> Value {
    service.with(|documents| documents.get(zone).pointer(MEMBERS).unwrap().clone())
}

#[tokio::test]
async fn bind_and_unbind_patch_the_whole_list_under_its_etag() {
    let service = Service::start(rack(), patch).await;
    let etag = service.with(|documents| documents.etag(ZONE));
    service
        .driver
        .bind(&unit(GPU), &unit(ZONE), DEADLINE)
        .await
        .unwrap();
    let expected = Sent {
        method: "PATCH".into(),
        path: ZONE.into(),
        if_match: Some(etag),
        body: json!({"Links": {"Endpoints": [{"@odata.id": HOST}, {"@odata.id": GPU}]}}),
    };
    assert_eq!(service.sent(), [expected]);
    let bound = service.driver.bound(&unit(GPU), DEADLINE).await.unwrap();
    assert_eq!(
        bound,
        Bound::To {
            port_address: ZONE.into()
        }
    );

    service
        .driver
        .unbind(&unit(GPU), &unit(ZONE), DEADLINE)
        .await
        .unwrap();
    assert_eq!(
        service.sent()[1].body,
        json!({"Links": {"Endpoints": [{"@odata.id": HOST}]}})
    );
    assert_eq!(
        service.driver.bound(&unit(GPU), DEADLINE).await.unwrap(),
        Bound::Free
    );
}

#[tokio::test]
async fn the_actions_are_preferred_and_their_bodies_are_dsp2046s() {
    let service = Service::start(with_actions(rack()), |documents, sent| {
        let endpoint = sent.body["Endpoint"]["@odata.id"].as_str().unwrap().to_owned();
        let mut list = documents
            .get(ZONE)
            .pointer(MEMBERS)
            .unwrap()
            .as_array()
            .unwrap()
            .clone();
        match sent.path.ends_with("AddEndpoint") {
            true => list.push(json!({"@odata.id": endpoint})),
            false => list.retain(|member| member["@odata.id"] != endpoint),
        }
        documents.set(ZONE, MEMBERS, list.into());
        DONE
    })
    .await;
    let (zone_etag, endpoint_etag) = service.with(|documents| (documents.etag(ZONE), documents.etag(GPU)));
    service
        .driver
        .bind(&unit(GPU), &unit(ZONE), DEADLINE)
        .await
        .unwrap();
    service
        .driver
        .unbind(&unit(GPU), &unit(ZONE), DEADLINE)
        .await
        .unwrap();
    let sent = service.sent();
    assert_eq!(sent[0].line(), format!("POST {ZONE}/Actions/Zone.AddEndpoint"));
    // Zone-v1-AddEndpoint-request-example.json: these three members, ETags as text.
    let body = json!({"Endpoint": {"@odata.id": GPU}, "EndpointETag": endpoint_etag, "ZoneETag": zone_etag});
    assert_eq!(sent[0].body, body);
    assert_eq!(sent[1].line(), format!("POST {ZONE}/Akshuns/Remove"));
    let keys: Vec<&String> = sent[1].body.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["Endpoint", "EndpointETag", "ZoneETag"]);
}

#[tokio::test]
async fn what_somebody_else_changed_in_between_is_kept() {
    let mut first = true;
    let service = Service::start(rack(), move |documents, sent| {
        if std::mem::take(&mut first) {
            documents.set(ZONE, MEMBERS, links(&[HOST, GPU2]));
        }
        patch(documents, sent)
    })
    .await;
    service
        .driver
        .bind(&unit(GPU), &unit(ZONE), DEADLINE)
        .await
        .unwrap();
    assert_eq!(service.sent().len(), 2);
    assert_eq!(members(&service, ZONE), links(&[HOST, GPU2, GPU]));
}

/// The conflict for which a bind of the GPU is refused.
async fn refused_bind(service: &Service) -> DriverError {
    let bound = service.driver.bind(&unit(GPU), &unit(ZONE), DEADLINE).await;
    let error = bound.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Conflict, "{error}");
    error
}

#[tokio::test]
async fn a_zone_that_always_changes_is_given_up_without_effect() {
    for status in [412, 428] {
        let service = Service::start(rack(), move |documents, _| {
            documents.set(ZONE, MEMBERS, links(&[HOST]));
            Reply::Status(status, None)
        })
        .await;
        refused_bind(&service).await;
        assert_eq!(service.sent().len(), 6);
    }
}

/// Refuses each ETag, as services do that quote theirs twice, give weak ones or compare them with nothing.
fn refuses_etags(documents: &mut Documents, sent: &Sent) -> Reply {
    if sent.if_match.is_some() {
        return Reply::Status(412, None);
    }
    documents.set(&sent.path, MEMBERS, sent.body["Links"]["Endpoints"].clone());
    DONE
}

/// Fault 91: ours is the only session.
#[tokio::test]
async fn a_service_that_refuses_its_own_etag_is_written_once_without_it() {
    let service = Service::start_with_sessions(rack(), refuses_etags).await;
    let etag = service.with(|documents| documents.etag(ZONE));
    let quirk = async || {
        let seen = service.driver.observe(&()).await.unwrap();
        seen.quirks.iter().any(|quirk| quirk.name == "etag-refused")
    };
    assert!(!quirk().await);
    service
        .driver
        .bind(&unit(GPU), &unit(ZONE), DEADLINE)
        .await
        .unwrap();
    let sent: Vec<_> = service.sent().into_iter().map(|sent| sent.if_match).collect();
    assert_eq!(sent, [Some(etag), None]);
    assert_eq!(members(&service, ZONE), links(&[HOST, GPU]));
    assert!(quirk().await);
}

/// The session of a late request would stay open.
#[tokio::test]
async fn a_driver_that_is_closed_opens_no_session_for_a_late_request() {
    let service = Service::start_with_sessions(rack(), |_, _| DONE).await;
    service.driver.bound(&unit(GPU), DEADLINE).await.unwrap();
    Fabric::close(&service.driver).await;
    let late = service.driver.bound(&unit(GPU), DEADLINE).await.unwrap_err();
    assert!(late.message.contains("logs in no more"), "{late}");
}

/// Fault 91: another client is logged in, or the service doesn't show its sessions.
#[tokio::test]
async fn a_refused_etag_stays_refused_where_another_client_may_write() {
    let another = service_with_another_client().await;
    let untold = Service::start(rack(), refuses_etags).await;
    for (service, why) in [
        (another, "other clients are logged in (1 sessions)"),
        (untold, "doesn't show its sessions"),
    ] {
        let error = refused_bind(&service).await;
        assert!(error.message.contains(why), "{error}");
        assert_eq!(service.sent().len(), 1);
        assert_eq!(members(&service, ZONE), links(&[HOST]));
    }
}

async fn service_with_another_client() -> Service {
    let service = Service::start_with_sessions(rack(), refuses_etags).await;
    let other = format!("{SESSIONS}/other");
    service.with(|documents| {
        documents.put(
            &other,
            json!({"@odata.type": "#Session.v1_7_0.Session", "UserName": "admin"}),
        );
        documents.collection(SESSIONS, "Session", &[OWN_SESSION, &other]);
    });
    service
}

/// Fault 91: the service refused the ETag and carried the change out.
#[tokio::test]
async fn a_refused_change_that_was_carried_out_is_not_sent_again() {
    let service = Service::start_with_sessions(rack(), |documents, sent| {
        documents.set(&sent.path, MEMBERS, sent.body["Links"]["Endpoints"].clone());
        Reply::Status(412, None)
    })
    .await;
    let error = refused_bind(&service).await;
    assert!(error.message.contains("is bound to"), "{error}");
    assert_eq!(service.sent().len(), 1);
}

/// Fault 16: a zone that stays as it was.
#[tokio::test]
async fn a_service_that_says_yes_and_does_nothing_is_found_out() {
    let service = Service::start(rack(), |_, _| DONE).await;
    let error = service
        .driver
        .bind(&unit(GPU), &unit(ZONE), DEADLINE)
        .await
        .unwrap_err();
    assert_eq!(error.kind, ErrorKind::OutcomeUnknown);
    assert!(error.message.contains("is free"), "{error}");
    assert_eq!(service.sent().len(), 1);
}

#[tokio::test]
async fn a_unit_that_is_held_is_not_touched_and_the_holder_is_named() {
    let mut documents = rack();
    documents.set(OTHER_ZONE, MEMBERS, links(&[OTHER_HOST, GPU]));
    let service = Service::start(documents, patch).await;
    for port in [ZONE, OTHER_ZONE] {
        let error = service
            .driver
            .bind(&unit(GPU), &unit(port), DEADLINE)
            .await
            .unwrap_err();
        assert_eq!(error.kind, ErrorKind::Conflict);
        assert!(error.message.contains(OTHER_ZONE), "{error}");
    }
    let error = service
        .driver
        .unbind(&unit(GPU), &unit(ZONE), DEADLINE)
        .await
        .unwrap_err();
    assert_eq!(error.kind, ErrorKind::Conflict);
    let error = service
        .driver
        .unbind(&unit(GPU2), &unit(ZONE), DEADLINE)
        .await
        .unwrap_err();
    assert!(error.message.contains("is free"), "{error}");
    assert!(service.sent().is_empty());
}

#[tokio::test]
async fn two_owners_are_told_and_not_repaired() {
    let mut documents = rack();
    documents.set(ZONE, MEMBERS, links(&[HOST, GPU]));
    documents.set(OTHER_ZONE, MEMBERS, links(&[OTHER_HOST, GPU]));
    let service = Service::start(documents, patch).await;
    let bound = service.driver.bound(&unit(GPU), DEADLINE).await.unwrap();
    assert_eq!(
        bound,
        Bound::Several {
            port_addresses: vec![ZONE.into(), OTHER_ZONE.into()]
        }
    );
    let error = service
        .driver
        .unbind(&unit(GPU), &unit(ZONE), DEADLINE)
        .await
        .unwrap_err();
    assert_eq!(error.kind, ErrorKind::Conflict);
    assert!(service.sent().is_empty());
}

#[tokio::test]
async fn only_a_clear_no_is_told_as_no_effect_and_nothing_is_sent_twice() {
    type Answer = fn() -> Reply;
    let cases: [(Answer, ErrorKind); 7] = [
        (|| Reply::Status(400, None), ErrorKind::NoEffect),
        (|| Reply::Status(404, None), ErrorKind::NoEffect),
        (|| Reply::Status(409, None), ErrorKind::Conflict),
        (|| Reply::Status(405, None), ErrorKind::CannotTell),
        (|| Reply::Status(501, None), ErrorKind::CannotTell),
        (|| Reply::Status(500, None), ErrorKind::OutcomeUnknown),
        (|| Reply::Nothing, ErrorKind::OutcomeUnknown),
    ];
    for (number, (answer, kind)) in cases.into_iter().enumerate() {
        let service = Service::start(rack(), move |_, _| answer()).await;
        let error = service
            .driver
            .bind(&unit(GPU), &unit(ZONE), DEADLINE)
            .await
            .unwrap_err();
        assert_eq!(error.kind, kind, "case {number}: {error}");
        assert_eq!(service.sent().len(), 1, "case {number}");
    }
}

#[tokio::test]
async fn without_etags_our_own_changes_still_take_turns() {
    let mut documents = rack();
    documents.without_etags = true;
    let service = Service::start(documents, |documents, sent| {
        assert_eq!(sent.if_match, None);
        documents.set(&sent.path, MEMBERS, sent.body["Links"]["Endpoints"].clone());
        DONE
    })
    .await;
    let (first, second, zone) = (unit(GPU), unit(GPU2), unit(ZONE));
    let (one, two) = tokio::join!(
        service.driver.bind(&first, &zone, DEADLINE),
        service.driver.bind(&second, &zone, DEADLINE),
    );
    one.unwrap();
    two.unwrap();
    assert_eq!(members(&service, ZONE).as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn an_endpoint_that_links_its_zones_is_believed_as_far_as_they_agree() {
    let mut documents = rack();
    let zones = links(&[ZONE, "/redfish/v1/Fabrics/PCIe/Zones/gone"]);
    documents.put(
        GPU,
        json!({"@odata.type": "#Endpoint.v1_8_2.Endpoint", "Links": {"Zones": zones}}),
    );
    let service = Service::start(documents, patch).await;
    // It says zone 1, but zone 1 does not have it.
    assert_eq!(
        service.driver.bound(&unit(GPU), DEADLINE).await.unwrap(),
        Bound::Free
    );
    service.with(|documents| documents.set(ZONE, MEMBERS, links(&[HOST, GPU])));
    let bound = service.driver.bound(&unit(GPU), DEADLINE).await.unwrap();
    assert_eq!(
        bound,
        Bound::To {
            port_address: ZONE.into()
        }
    );
}

#[tokio::test]
async fn ends_of_two_fabrics_are_never_bound_to_each_other() {
    let service = Service::start(rack(), patch).await;
    let mut elsewhere = unit(ZONE);
    elsewhere.endpoint = poolwright_model::id::ControlEndpointId::from_lossy("box-2");
    let connection = point(ControlStyle::Connections, HOST);
    for port in [elsewhere, connection] {
        let error = service
            .driver
            .bind(&unit(GPU), &port, DEADLINE)
            .await
            .unwrap_err();
        assert_eq!(error.kind, ErrorKind::NoEffect, "{error}");
    }
    let shown = point(ControlStyle::ReadOnly, GPU);
    let error = service.driver.bind(&shown, &shown, DEADLINE).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::CannotTell);
    assert!(service.sent().is_empty());
}
