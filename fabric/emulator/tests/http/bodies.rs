//! Bodies that DMTF's schema forbids are refused, each with its message, and nothing changes.

use crate::site::{Site, ZONE, links, messages};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

const HOST: &str = "/redfish/v1/Fabrics/PCIe/Endpoints/host-1-port-1";
const GPU: &str = "/redfish/v1/Fabrics/PCIe/Endpoints/gpu-1";

#[tokio::test]
async fn a_body_that_the_schema_forbids_is_refused() {
    let site = Site::of("zones").await;
    let add = format!("{ZONE}/Actions/Zone.AddEndpoint");
    let reset = "/redfish/v1/Chassis/box-1/Processors/gpu-1/Actions/Processor.Reset";
    let before = site.emulation().with(|state, _| state.save());
    for (method, path, body, expected) in [
        (
            Method::PATCH,
            ZONE,
            json!({ "Endpoints": [] }),
            vec!["PropertyUnknown"],
        ),
        (
            Method::PATCH,
            ZONE,
            json!({ "Links": { "Endpoint": [] } }),
            vec!["PropertyUnknown"],
        ),
        (
            Method::PATCH,
            ZONE,
            json!({ "Id": "2" }),
            vec!["PropertyNotWritable"],
        ),
        (
            Method::PATCH,
            ZONE,
            json!({ "ZoneType": "Default" }),
            vec!["PropertyNotWritable"],
        ),
        (
            Method::PATCH,
            ZONE,
            json!({ "ZoneType": "Best" }),
            vec!["PropertyValueNotInList"],
        ),
        (
            Method::PATCH,
            ZONE,
            json!({ "Links": { "Endpoints": GPU } }),
            vec!["PropertyValueTypeError"],
        ),
        (
            Method::PATCH,
            ZONE,
            json!({ "Links": { "Endpoints": [GPU] } }),
            vec!["PropertyValueTypeError"],
        ),
        (
            Method::PATCH,
            ZONE,
            json!({ "Links": [] }),
            vec!["PropertyValueTypeError"],
        ),
        (
            Method::PATCH,
            ZONE,
            json!({ "Links": { "ContainsZones": [] } }),
            vec!["PropertyNotWritable"],
        ),
        (Method::PATCH, ZONE, json!({}), vec!["NoOperation"]),
        (
            Method::PATCH,
            ZONE,
            json!({ "@odata.id": ZONE }),
            vec!["NoOperation"],
        ),
        (Method::PATCH, ZONE, json!([]), vec!["UnrecognizedRequestBody"]),
        (
            Method::PATCH,
            ZONE,
            json!({ "Links": { "Endpoints": links(&[GPU]) } }),
            vec!["PropertyValueError"],
        ),
        (
            Method::PATCH,
            ZONE,
            json!({ "Links": { "Endpoints": links(&[HOST, GPU, GPU]) } }),
            vec!["PropertyValueError"],
        ),
        (
            Method::PATCH,
            ZONE,
            json!({ "Links": { "Endpoints": links(&[HOST, "/redfish/v1/Nowhere"]) } }),
            vec!["PropertyValueError"],
        ),
        (Method::POST, &add, json!({}), vec!["ActionParameterMissing"]),
        (
            Method::POST,
            &add,
            json!({ "Endpoint": GPU }),
            vec!["ActionParameterValueTypeError"],
        ),
        (
            Method::POST,
            &add,
            json!({ "Endpoint": { "@odata.id": GPU }, "Force": true }),
            vec!["ActionParameterUnknown"],
        ),
        (
            Method::POST,
            &add,
            json!({ "Endpoint": { "@odata.id": HOST } }),
            vec!["ActionParameterValueError"],
        ),
        (
            Method::POST,
            reset,
            json!({ "ResetType": "Nicely" }),
            vec!["ActionParameterValueNotInList"],
        ),
        (
            Method::POST,
            reset,
            json!({ "ResetType": "Nmi" }),
            vec!["ActionParameterValueNotInList"],
        ),
        (
            Method::POST,
            crate::site::SESSIONS,
            json!({ "UserName": "admin" }),
            vec!["PropertyMissing"],
        ),
        (
            Method::POST,
            crate::site::SESSIONS,
            json!({ "UserName": 1, "Password": "x" }),
            vec!["PropertyValueTypeError"],
        ),
    ] {
        let response = site.send(method.clone(), "box-1", path, body.clone()).await;
        assert_eq!(
            response.status(),
            StatusCode::BAD_REQUEST,
            "{method} {path} {body}"
        );
        assert_eq!(messages(response).await, expected, "{method} {path} {body}");
    }
    assert_eq!(site.emulation().with(|state, _| state.save()), before);
    site.running.stop().await;
}

#[tokio::test]
async fn what_is_no_json_or_too_much_is_refused() {
    let site = Site::of("small").await;
    let send = async |request: reqwest::RequestBuilder, body: String| {
        let request = request.header("content-type", "application/json");
        request.body(body).send().await.unwrap()
    };
    let refused = send(
        site.request(Method::PATCH, "box-1", ZONE),
        "{\"Links\":".to_owned(),
    )
    .await;
    assert_eq!(refused.status(), StatusCode::BAD_REQUEST);
    assert_eq!(messages(refused).await, ["MalformedJSON"]);

    let body = |kilobytes: usize| format!("{{\"Name\":\"{}\"}}", "x".repeat(kilobytes * 1024));
    let refused = send(site.request(Method::PATCH, "box-1", ZONE), body(65)).await;
    assert_eq!(refused.status(), StatusCode::PAYLOAD_TOO_LARGE);
    // Somebody who has not shown who he is is heard only shortly.
    let refused = send(
        site.anonymous(Method::POST, "box-1", crate::site::SESSIONS),
        body(5),
    )
    .await;
    assert_eq!(refused.status(), StatusCode::PAYLOAD_TOO_LARGE);
    let nested = "[".repeat(10_000);
    let refused = send(site.request(Method::PATCH, "box-1", ZONE), nested).await;
    assert_eq!(messages(refused).await, ["MalformedJSON"]);
    site.running.stop().await;
}

#[tokio::test]
async fn an_error_says_what_and_where() {
    let site = Site::of("small").await;
    let body = json!({ "Links": { "Endpoints": [{ "@odata.id": 7 }] }, "Colour": "red" });
    let response = site.send(Method::PATCH, "box-1", ZONE, body).await;
    let error: Value = response.json().await.unwrap();
    let info = error["error"]["@Message.ExtendedInfo"].as_array().unwrap();
    assert_eq!(
        error["error"]["code"], "Base.1.22.GeneralError",
        "more than one thing is wrong: {error}"
    );
    let unknown = info
        .iter()
        .find(|one| one["MessageId"] == "Base.1.22.PropertyUnknown")
        .unwrap();
    assert_eq!(unknown["MessageArgs"], json!(["Colour"]));
    assert_eq!(unknown["RelatedProperties"], json!(["/Colour"]));
    assert_eq!(unknown["MessageSeverity"], "Warning");
    site.running.stop().await;
}
