//! What happens, pushed to whoever subscribed: once each, in order, and without looking at the receiver's certificate, as
//! the BMCs of the field do it where nobody tells them otherwise.

use crate::events::Told;
use crate::resources::events::event;
use crate::subscriptions::{Subscription, Subscriptions};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme, StreamOwned};
use std::error::Error;
use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

/// Who does not take an event within so long misses it.
const PATIENCE: Duration = Duration::from_secs(5);

/// Pushes what one service tells, for as long as there is a rack.
pub(super) async fn run(mut told: Told, subscriptions: Arc<Subscriptions>) {
    let mut id = 0;
    while told.next().await.is_some() {
        id += 1;
        for one in subscriptions.all() {
            let sent = tokio::task::spawn_blocking(move || send(&one, id).map_err(|error| error.to_string()));
            if let Ok(Err(error)) = sent.await {
                tracing::debug!(error, "an event was not taken");
            }
        }
    }
}

fn send(to: &Subscription, id: u64) -> Result<(), Box<dyn Error>> {
    let rest = to.destination.strip_prefix("https://").ok_or("no https")?;
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
    let with_port = match host == authority {
        true => format!("{authority}:443"),
        false => authority.to_owned(),
    };
    let address = with_port.to_socket_addrs()?.next().ok_or("no address")?;
    let socket = TcpStream::connect_timeout(&address, PATIENCE)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_write_timeout(Some(PATIENCE))?;
    let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned())?;
    let tls = ClientConnection::new(Arc::new(believing_all()?), name)?;
    let mut stream = StreamOwned::new(tls, socket);
    let mut body = event(id);
    body["Context"] = to.context.as_str().into();
    let body = body.to_string();
    write!(
        stream,
        "POST /{path} HTTP/1.1\r\nHost: {authority}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )?;
    stream.flush()?;
    let mut status = [0; 12];
    stream.read_exact(&mut status)?;
    match &status[9..10] {
        b"2" => Ok(()),
        _ => Err(String::from_utf8_lossy(&status).into()),
    }
}

fn believing_all() -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(ring::default_provider());
    let config =
        ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions()?;
    let config = config
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody(provider)));
    Ok(config.with_no_client_auth())
}

#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
