//! What to do next, for each thing that can go wrong.

use super::error::{Effect, Error, ErrorKind, LinkFault, NotSent, Unreadable};
use super::tls::TlsFault;

impl Error {
    /// What the person in front of it can do next.
    pub fn hint(&self) -> &'static str {
        if self.effect() == Effect::Unknown {
            return match self.kind() {
                ErrorKind::TaskFailed { .. } => {
                    "read the resource back: a failed task may have done part of its work"
                }
                _ => "read the resource back before trying again: it may have been done",
            };
        }
        match self.kind() {
            ErrorKind::NotSent(why) => not_sent(why),
            ErrorKind::Tls(fault) => tls(fault),
            ErrorKind::Refused(refusal) => refused(refusal.status),
            ErrorKind::ErrorBody(_) if self.is_not_found() => refused(404),
            ErrorKind::ErrorBody(_) => refused(500),
            ErrorKind::Unreadable(why) => unreadable(why, self.is_of_root()),
            ErrorKind::NotRedfish { .. } => {
                "check host and port: a Redfish service answers at /redfish/v1/, often on another port than the web page"
            }
            ErrorKind::CredentialsRefused { answer: Some(_), .. } => {
                "check user name and password; a further wrong try may lock the account on the service"
            }
            ErrorKind::CredentialsRefused { answer: None, .. } => {
                "nothing was sent, so that the account is not locked: put the right password into its file; one that is right by now is tried once more by poolwright endpoint test NAME"
            }
            ErrorKind::SessionEnded => "read how things are, and ask again if it is still wanted",
            ErrorKind::Redirected { .. } => "use the address that it points to, if you trust it",
            ErrorKind::Link {
                why: LinkFault::OtherOrigin,
                ..
            } => {
                "the service names itself by another address: use that address as the endpoint, if you trust it"
            }
            ErrorKind::Link { .. } => "report it to the vendor: the rest of the service can be used",
            // The first two always leave the outcome open, and are answered above.
            ErrorKind::OutcomeUnknown { .. }
            | ErrorKind::TaskFailed { .. }
            | ErrorKind::DeadlineExceeded { .. } => {
                "the service is slow or stuck: look at its own log, ask it for less at once, or try again later"
            }
            ErrorKind::PageLoop(_) | ErrorKind::TooMany { .. } => {
                "report it to the vendor: the members read so far can be used"
            }
        }
    }

    /// Whether it was the service root that was asked for: without it there is no rest.
    fn is_of_root(&self) -> bool {
        self.request().trim_end_matches('/').ends_with("/redfish/v1")
    }
}

fn not_sent(why: &NotSent) -> &'static str {
    match why {
        NotSent::BadAddress(_) => {
            "write it as https://HOST or https://HOST:PORT, without path and without credentials"
        }
        NotSent::PlainHttp => "use https, or allow it by name with --insecure-http",
        NotSent::OtherTransport => "share a transport only among endpoints with the same TLS settings",
        NotSent::UnknownHost(_) => "check the host name, and that this machine's DNS knows it",
        NotSent::ConnectionRefused => "check host and port, and that the service runs",
        NotSent::Unreachable(_) => "check the address, and the route to the management network",
        NotSent::ConnectTimeout => {
            "check the address; a firewall that drops packets, or a hung controller, looks like this"
        }
        NotSent::TooManyOpenFiles => {
            "raise the limit of open files (ulimit -n 65536), or lower the concurrency"
        }
        NotSent::BadRequest(_) => "this is an error of the program that calls: report it",
        NotSent::Other(_) => "check host and port",
    }
}

fn tls(fault: &TlsFault) -> &'static str {
    match fault {
        TlsFault::UnknownIssuer => {
            "give the CA that signed it (--ca FILE; with endpoint add --endpoint-ca FILE), or pin this certificate's fingerprint (--pin, --endpoint-pin) after checking it on the machine"
        }
        TlsFault::WrongName { .. } => {
            "use one of the names that the certificate is for, or pin its fingerprint"
        }
        TlsFault::Expired => "renew the certificate on the machine, or check this machine's clock",
        TlsFault::NotYetValid => "check the clocks of both machines",
        TlsFault::Revoked => "give the machine a new certificate",
        TlsFault::PinMismatch { .. } => {
            "find out why it changed (a new image, or somebody in between) before pinning the new one; a change that is planned is pinned in advance"
        }
        TlsFault::BadCertificate(_) => {
            "pin its fingerprint after checking it on the machine, or give it a proper one"
        }
        TlsFault::NotTls => "the port does not speak TLS: check the port, or whether it is plain http",
        TlsFault::HungUp(_) => {
            "it may be starting or stopping: ask again; else it may speak only TLS older than 1.2, or want a client certificate"
        }
        TlsFault::Handshake(_) => {
            "the machine may speak only TLS older than 1.2, or want a client certificate"
        }
        TlsFault::BadCa(_) => "give a PEM file with at least one CA certificate",
        TlsFault::NoSystemRoots(_) => {
            "install the system's CA certificates (package ca-certificates), or give the CA (--ca FILE; with endpoint add --endpoint-ca FILE)"
        }
    }
}

fn refused(status: u16) -> &'static str {
    match status {
        401 => "give credentials: this service wants some",
        403 => "this account lacks the privilege: use another, or have the privilege added",
        404 | 410 => "it is not there (any more): read the collection again",
        405 | 501 => "the service does not offer this: another way or other firmware is needed",
        409 => "something else holds it, or the state does not allow it: read it back",
        412 | 428 => "it changed since it was read: read it again, then decide",
        429 | 503 => "the service is busy: try again later, or lower the concurrency",
        500..=599 => "an error inside the service: look at its log",
        _ => "the message names what it does not accept",
    }
}

fn unreadable(why: &Unreadable, is_root: bool) -> &'static str {
    match why {
        Unreadable::Html => {
            "something else answers there, a login page or a proxy: check host, port and path"
        }
        Unreadable::TooLarge { .. } => "more than is read of such an answer: check what answers there",
        Unreadable::Lost(_) | Unreadable::CutOff { .. } => {
            "the service closed the connection: it may be restarting"
        }
        Unreadable::NotHttp(_) => "check the port: what answers there is not a web service",
        Unreadable::Empty
        | Unreadable::NotJson(_)
        | Unreadable::WrongShape(_)
        | Unreadable::TooDeep
        | Unreadable::Compressed(_)
            if is_root =>
        {
            "nothing of this service can be read: check what answers there, and restart its controller"
        }
        Unreadable::Empty
        | Unreadable::NotJson(_)
        | Unreadable::WrongShape(_)
        | Unreadable::TooDeep
        | Unreadable::Compressed(_)
        | Unreadable::NoToken => "report it to the vendor: the rest of the service can be used",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn no_hint_promises_what_is_not_there() {
        let of = |request: &str, why: ErrorKind| Error::harmless(request, why).hint();
        let garbage = || Unreadable::NotJson("x".into()).into();
        assert!(of("GET https://bmc/redfish/v1/", garbage()).contains("nothing of this service"));
        assert!(of("GET https://bmc/redfish/v1/Systems", garbage()).contains("the rest"));
        let slow = ErrorKind::DeadlineExceeded {
            waiting_for: "the body".into(),
            after: Duration::from_secs(30),
        };
        assert!(!of("GET https://bmc/redfish/v1/", slow).contains("more time"));
        let large = Unreadable::TooLarge { limit: 64 << 10 };
        assert!(!of("GET https://bmc/redfish/v1/", large.into()).contains("no Redfish document"));
    }
}
