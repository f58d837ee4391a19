use poolwright_driver::Fabric;
use poolwright_model::id::ControlEndpointId;
use poolwright_redfish::client::{Endpoint, Limits};
use poolwright_redfish::southbound::RedfishDriver;
use poolwright_tests::mockup_server::{MockupServer, Options};

#[tokio::test]
async fn explore() {
    let name = std::env::var("TREE").unwrap();
    let tree = poolwright_tests::trees::unpack_tree(&name).unwrap();
    let server = MockupServer::start(&tree, Options::default()).await.unwrap();
    let endpoint = Endpoint::new(&server.url).unwrap().limits(Limits::with_concurrency(32));
    let driver = RedfishDriver::connect(ControlEndpointId::from_lossy("it"), endpoint).await.unwrap();
    let began = std::time::Instant::now();
    let seen = driver.observe(&()).await.unwrap();
    eprintln!("{:?} {} requests", began.elapsed(), seen.requests);
    for g in &seen.topology.gpus { eprintln!("{}", serde_json::to_string(g).unwrap()); }
    for g in &seen.topology.hosts { eprintln!("{}", serde_json::to_string(g).unwrap()); }
    for g in &seen.topology.fabrics { eprintln!("{}", serde_json::to_string(g).unwrap()); }
    eprintln!("switches {} links {} units {:?}", seen.topology.switches.len(), seen.topology.links.len(), seen.topology.units);
    if let Some(s) = seen.topology.switches.last() { eprintln!("{}", serde_json::to_string(s).unwrap()); }
    for f in &seen.faults { eprintln!("FAULT {f:?}"); }
    for q in &seen.quirks { eprintln!("QUIRK {}", q.name); }
}
