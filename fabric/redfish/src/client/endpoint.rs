//! Where a Redfish service is, who we are to it, and whom we believe to be it.

use url::{Host, Url};

use super::error::{Error, ErrorKind, NotSent, Result};
use super::{Auth, Limits, Refusals, Tls};

/// One Redfish service: its address, our credentials, whose certificate we accept, and what it may cost us.
#[derive(Debug, Clone)]
pub struct Endpoint {
    base: Url,
    pub auth: Auth,
    pub tls: Tls,
    /// Allow plain http to a host that is not this one. Passwords then travel in the clear.
    pub insecure_http: bool,
    pub limits: Limits,
    /// How often the credentials were refused so far, by whichever client. A clone shares it.
    pub refusals: Refusals,
}

impl Endpoint {
    /// From an address such as `https://10.0.0.7` or `https://bmc-17:8443/redfish/v1`: no credentials, the
    /// system's CAs, default limits. Fields are public; set what differs.
    pub fn new(address: &str) -> Result<Self> {
        let bad = |why: String| {
            Error::harmless(
                format!("address {}", without_userinfo(address)),
                NotSent::BadAddress(why),
            )
        };
        let mut base = Url::parse(address).map_err(|e| bad(e.to_string()))?;
        if !matches!(base.scheme(), "https" | "http") {
            return Err(bad(format!("the scheme is {}, not https", base.scheme())));
        }
        if base.host().is_none() {
            return Err(bad("it names no host".into()));
        }
        if !base.username().is_empty() || base.password().is_some() {
            return Err(bad(
                "it holds credentials; give them apart from the address".into()
            ));
        }
        if !matches!(base.path().trim_end_matches('/'), "" | "/redfish" | "/redfish/v1")
            || base.query().is_some()
        {
            return Err(bad(
                "a Redfish service is known by its host and port: leave out the path".into(),
            ));
        }
        base.set_path("/");
        base.set_fragment(None);
        Ok(Self {
            base,
            auth: Auth::None,
            tls: Tls::SystemRoots,
            insecure_http: false,
            limits: Limits::default(),
            refusals: Refusals::default(),
        })
    }

    /// The same endpoint with these credentials.
    #[must_use]
    pub fn auth(mut self, auth: Auth) -> Self {
        self.auth = auth;
        self
    }

    /// The same endpoint, believed by this rule.
    #[must_use]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = tls;
        self
    }

    /// The same endpoint within these limits.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Scheme, host and port, with the path `/`.
    pub fn base(&self) -> &Url {
        &self.base
    }

    pub(crate) fn is_plain_http(&self) -> bool {
        self.base.scheme() == "http"
    }

    /// Refuses plain http to another machine unless it was asked for by name.
    pub fn check(&self) -> Result<()> {
        if self.is_plain_http() && !self.insecure_http && !is_loopback(&self.base) {
            return Err(Error::harmless(
                format!("address {}", self.base),
                ErrorKind::NotSent(NotSent::PlainHttp),
            ));
        }
        Ok(())
    }
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        // RFC 6761: this name never leaves the machine.
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    }
}

/// An address as it may be shown, even one that did not parse.
fn without_userinfo(address: &str) -> String {
    match address.rsplit_once('@') {
        Some((before, host)) => {
            let scheme = before.split_once("://").map_or("", |(scheme, _)| scheme);
            format!("{scheme}://…@{host}")
        }
        None => address.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_the_ways_people_write_an_address() {
        for address in [
            "https://bmc",
            "https://bmc/",
            "https://bmc/redfish",
            "https://bmc/redfish/v1/",
        ] {
            assert_eq!(Endpoint::new(address).unwrap().base().as_str(), "https://bmc/");
        }
        assert_eq!(
            Endpoint::new("https://[fe80::1]:8443").unwrap().base().as_str(),
            "https://[fe80::1]:8443/"
        );
    }

    #[test]
    fn refuses_what_is_no_service_address_and_hides_credentials() {
        for address in [
            "bmc",
            "ftp://bmc",
            "https://bmc/ui/login",
            "https://bmc/?a=b",
            "https://u:hunter2@bmc/",
        ] {
            let error = Endpoint::new(address).unwrap_err();
            assert!(
                matches!(error.kind(), ErrorKind::NotSent(NotSent::BadAddress(_))),
                "{error}"
            );
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
        // Does not even parse, and still shows no password.
        let error = Endpoint::new("https://u:hunter2@b mc/").unwrap_err().to_string();
        assert!(!error.contains("hunter2"), "{error}");
    }

    #[test]
    fn plain_http_stays_on_this_machine() {
        for near in [
            "http://127.0.0.1:8000",
            "http://127.9.8.7",
            "http://[::1]:1",
            "http://localhost:1",
        ] {
            Endpoint::new(near).unwrap().check().unwrap();
        }
        let mut far = Endpoint::new("http://10.0.0.7").unwrap();
        assert!(matches!(
            far.check().unwrap_err().kind(),
            ErrorKind::NotSent(NotSent::PlainHttp)
        ));
        far.insecure_http = true;
        far.check().unwrap();
        assert!(
            Endpoint::new("http://localhost.example.com")
                .unwrap()
                .check()
                .is_err()
        );
    }
}
