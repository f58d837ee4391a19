//! A served rack, and a client that trusts it.

use poolwright_emulator::fault::Fault;
use poolwright_emulator::{Emulation, Rack, Running, ServeOptions, serve};
use reqwest::{Certificate, Client, Method, RequestBuilder, Response, StatusCode};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

pub const ZONE: &str = "/redfish/v1/Fabrics/PCIe/Zones/host-1-port-1";
pub const GPU: &str = "/redfish/v1/Chassis/box-1/Processors/gpu-1";
pub const SESSIONS: &str = "/redfish/v1/SessionService/Sessions";

pub struct Site {
    pub running: Running,
    pub client: Client,
}

pub fn client(running: &Running) -> Client {
    let ca = Certificate::from_pem(running.ca_pem().as_bytes()).unwrap();
    let provider = rustls::crypto::ring::default_provider();
    let _ = provider.install_default();
    Client::builder()
        .tls_certs_only([ca])
        .timeout(Duration::from_secs(60))
        .build()
        .unwrap()
}

impl Site {
    pub async fn of(rack: &str) -> Self {
        Self::with(Rack::builtin(rack).unwrap(), ServeOptions::default()).await
    }

    pub async fn with(rack: Rack, options: ServeOptions) -> Self {
        let running = serve(rack, options).await.unwrap();
        let client = client(&running);
        Self { running, client }
    }

    pub fn emulation(&self) -> &Arc<Emulation> {
        self.running.emulation()
    }

    pub fn fault(&self, fault: Fault) {
        self.emulation().add_fault(fault).unwrap();
    }

    /// `https://…` of the endpoint of this name.
    pub fn url(&self, endpoint: &str) -> String {
        let found = self.running.endpoints().iter().find(|one| one.name == endpoint);
        found
            .unwrap_or_else(|| panic!("there is no {endpoint}"))
            .url
            .clone()
    }

    /// Without credentials.
    pub fn anonymous(&self, method: Method, endpoint: &str, path: &str) -> RequestBuilder {
        self.client.request(method, self.url(endpoint) + path)
    }

    pub fn request(&self, method: Method, endpoint: &str, path: &str) -> RequestBuilder {
        let request = self.anonymous(method, endpoint, path);
        request.basic_auth(self.running.username(), Some(self.running.password()))
    }

    pub async fn get(&self, endpoint: &str, path: &str) -> Value {
        let response = self.request(Method::GET, endpoint, path).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        response.json().await.unwrap()
    }

    pub async fn send(&self, method: Method, endpoint: &str, path: &str, body: Value) -> Response {
        self.request(method, endpoint, path)
            .json(&body)
            .send()
            .await
            .unwrap()
    }

    pub async fn post(&self, endpoint: &str, path: &str, body: Value) -> Response {
        self.send(Method::POST, endpoint, path, body).await
    }

    /// `box-1/gpu-1` → `host-1/port-1`, from the truth.
    pub fn bound(&self, gpu: &str) -> Option<String> {
        let rack = self.emulation().rack();
        let gpu = rack.gpu_named(gpu).unwrap();
        self.emulation()
            .with(|state, _| state.bound_to(gpu))
            .map(|port| rack.port_name(port))
    }
}

/// The uris of a list of links.
pub fn uris(list: &Value) -> Vec<&str> {
    list.as_array()
        .unwrap()
        .iter()
        .map(|link| link["@odata.id"].as_str().unwrap())
        .collect()
}

pub fn links(uris: &[&str]) -> Value {
    uris.iter().map(|uri| json!({ "@odata.id": uri })).collect()
}

pub fn header<'a>(response: &'a Response, name: &str) -> &'a str {
    response
        .headers()
        .get(name)
        .map_or("", |value| value.to_str().unwrap())
}

/// The names of the messages of an error, such as `PropertyUnknown`.
pub async fn messages(response: Response) -> Vec<String> {
    let body: Value = response.json().await.unwrap();
    let info = body["error"]["@Message.ExtendedInfo"].as_array().unwrap();
    let key = |message: &Value| {
        message["MessageId"]
            .as_str()
            .unwrap()
            .rsplit('.')
            .next()
            .unwrap()
            .to_owned()
    };
    info.iter().map(key).collect()
}

/// Asks until it is so, for a minute at least.
pub async fn until<F: AsyncFnMut() -> bool>(what: &str, mut so: F) {
    for _ in 0..6000 {
        if so().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("waited in vain until {what}");
}
