//! Requests to a manager: its address, the certificates that are trusted, and failures to reach it.

use crate::exit_code::ExitCode;
use crate::failure::Failure;
use poolwright_redfish::client::{
    self, Endpoint, ErrorKind, Fingerprint, NotSent, Tls, TlsFault, client_config,
};
use std::fs;
use std::path::Path;
use url::Url;

/// The manager's address: https, or plain http on this machine.
pub fn manager_address(text: &str) -> Result<Url, Failure> {
    let checked = Endpoint::new(text).and_then(|endpoint| endpoint.check().map(|()| endpoint.base().clone()));
    checked.map_err(|error| {
        let why = match error.kind() {
            ErrorKind::NotSent(why) => why.to_string(),
            kind => kind.to_string(),
        };
        Failure::usage(format!("the manager's address {text}: {why}"))
            .with_hint("write it as https://HOST or https://HOST:PORT; plain http is for this machine alone")
    })
}

/// Why a request did not reach the manager at `base`; `None` where it may have.
pub fn unreached(base: &str, error: &reqwest::Error) -> Option<Failure> {
    let error = client::unreached(base, error)?;
    // A manager that starts or stops hangs up: a retry may help.
    let code = match error.kind() {
        ErrorKind::Tls(fault) if !matches!(fault, TlsFault::HungUp(_)) => ExitCode::Authentication,
        _ => ExitCode::Unavailable,
    };
    let failed = |what: &str, why: &dyn std::fmt::Display, hint: &str| {
        Failure::new(code, format!("the manager at {base} {what}: {why}")).with_hint(hint)
    };
    Some(match error.kind() {
        ErrorKind::Tls(fault @ TlsFault::UnknownIssuer) => failed(
            "is not believed",
            fault,
            "give the authority of this very manager: --ca DATA_DIR/tls/ca.pem of poolwright serve, or POOLWRIGHT_CA",
        ),
        ErrorKind::Tls(fault @ TlsFault::WrongName { .. }) => failed(
            "is not believed",
            fault,
            "ask it by a name that its certificate is for (--server https://NAME:PORT, or POOLWRIGHT_SERVER), or start it with poolwright serve --name NAME",
        ),
        ErrorKind::Tls(fault @ (TlsFault::Expired | TlsFault::NotYetValid)) => failed(
            "is not believed",
            fault,
            "check the clocks of both machines; a manager renews the certificates of its own authority by itself: see \
             docs/CERTIFICATES.md",
        ),
        // One that stops just now does so.
        ErrorKind::Tls(fault @ TlsFault::HungUp(_)) => {
            failed("does not answer", fault, error.hint()).that_may_pass()
        }
        ErrorKind::Tls(fault) => failed("can't be spoken to in private", fault, error.hint()),
        ErrorKind::NotSent(NotSent::ConnectionRefused) => failed(
            "does not answer",
            &NotSent::ConnectionRefused,
            "check the address, and that the manager runs: poolwright serve --data-dir DIR",
        )
        .that_may_pass(),
        ErrorKind::NotSent(why) => failed("does not answer", why, error.hint()).that_may_pass(),
        kind => failed("does not answer", kind, error.hint()).that_may_pass(),
    })
}

/// A client for a service whose certificate this authority signed, or that has this fingerprint, or else that the system
/// trusts.
pub fn manager_client(ca: Option<&Path>, pin: Option<&str>) -> Result<reqwest::Client, Failure> {
    let tls = match (ca, pin) {
        (Some(file), _) => Tls::Ca(read_authority(file)?.into_bytes()),
        (None, Some(pin)) => Tls::Pinned(fingerprint(pin)?),
        (None, None) => Tls::SystemRoots,
    };
    let made = client_config(&tls).map_err(|fault| fault.to_string());
    let made = made.and_then(|config| {
        let builder = reqwest::Client::builder().tls_backend_preconfigured(config);
        let builder = builder.redirect(reqwest::redirect::Policy::none()).no_proxy();
        builder.build().map_err(|error| error.to_string())
    });
    made.map_err(|why| Failure::usage(format!("no secure connection can be made: {why}")))
}

/// Parses the SHA-256 fingerprint of a certificate.
pub fn fingerprint(text: &str) -> Result<Fingerprint, Failure> {
    text.parse().map_err(|error: String| {
        Failure::usage(error).with_hint("openssl x509 -in FILE -noout -fingerprint -sha256 shows it")
    })
}

/// Certificate authorities from their file.
pub fn read_authority(file: &Path) -> Result<String, Failure> {
    let text = fs::read(file).map_err(|error| Failure::file(file, "read", &error))?;
    let text = String::from_utf8(text).unwrap_or_default();
    match text.contains("-----BEGIN CERTIFICATE-----") {
        true => Ok(text),
        false => Err(
            Failure::usage(format!("{} holds no certificate in PEM form", file.display()))
                .with_hint("give a PEM file with at least one CA certificate"),
        ),
    }
}
