//! A pod of 1,152 endpoints.

use crate::site::Site;
use futures_util::{StreamExt, stream};
use reqwest::{Method, StatusCode};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_of_1152_endpoints_answers_at_every_one() {
    let site = Site::of("pod-4096").await;
    assert_eq!(site.running.endpoints().len(), 1152);
    // A handshake in an unoptimised build takes its time: every sixteenth is asked, the last one with it.
    let asked = site.running.endpoints().iter().rev().step_by(16);
    let answers = stream::iter(asked).map(|endpoint| {
        let request = site.anonymous(Method::GET, &endpoint.name, "/redfish/v1");
        async move { request.send().await.unwrap().status() }
    });
    let statuses: Vec<StatusCode> = answers.buffer_unordered(32).collect().await;
    assert_eq!(statuses, vec![StatusCode::OK; 72]);
    site.running.stop().await;
}
