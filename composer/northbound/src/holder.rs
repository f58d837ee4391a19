//! Subject, issuer and serial number of a certificate (RFC 5280, 4.1.2), for display. No verification happens here.

use crate::der::{Element, element};

/// DER's tags: of the version, and of the texts that are in use.
const VERSION: u8 = 0xa0;
const TEXTS: [u8; 3] = [0x0c, 0x13, 0x16];

/// What a name has, by DER's object identifiers, as Redfish calls it.
const PARTS: [(&[u8], &str); 7] = [
    (&[0x55, 0x04, 0x03], "CommonName"),
    (&[0x55, 0x04, 0x06], "Country"),
    (&[0x55, 0x04, 0x07], "City"),
    (&[0x55, 0x04, 0x08], "State"),
    (&[0x55, 0x04, 0x0a], "Organization"),
    (&[0x55, 0x04, 0x0b], "OrganizationalUnit"),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x01], "Email"),
];

/// A name, part by part.
pub(crate) type Name = Vec<(&'static str, String)>;

/// What a certificate says of itself.
#[derive(Debug, PartialEq)]
pub(crate) struct Holder<'c> {
    /// The serial number, without a leading zero byte that only encodes the sign.
    pub serial: &'c [u8],
    pub issuer: Name,
    pub subject: Name,
}

/// Reads a certificate in DER; `None` if it is none.
pub(crate) fn of(certificate: &[u8]) -> Option<Holder<'_>> {
    let certificate = element(certificate)?;
    let mut fields = element(certificate.content)?.content;
    let first = element(fields)?;
    if first.tag == VERSION {
        fields = first.rest;
    }
    let serial = element(fields)?;
    let algorithm = element(serial.rest)?;
    let issuer = element(algorithm.rest)?;
    let validity = element(issuer.rest)?;
    let subject = element(validity.rest)?;
    Some(Holder {
        serial: match serial.content {
            [0, rest @ ..] if !rest.is_empty() => rest,
            all => all,
        },
        issuer: name(issuer.content)?,
        subject: name(subject.content)?,
    })
}

/// Reads sets of attribute types and values. Leaves out attribute types that are not in `PARTS`.
fn name(mut sets: &[u8]) -> Option<Name> {
    let mut parts: Name = Vec::new();
    while !sets.is_empty() {
        let set = element(sets)?;
        sets = set.rest;
        let mut pairs = set.content;
        while !pairs.is_empty() {
            let pair = element(pairs)?;
            pairs = pair.rest;
            let kind = element(pair.content)?;
            let known = PARTS.iter().find(|(id, _)| *id == kind.content);
            let text = text(&element(kind.rest)?);
            if let (Some((_, part)), Some(text)) = (known, text)
                && parts.iter().all(|(other, _)| other != part)
            {
                parts.push((part, text));
            }
        }
    }
    Some(parts)
}

fn text(value: &Element<'_>) -> Option<String> {
    let is_text = TEXTS.contains(&value.tag);
    let text = std::str::from_utf8(value.content).ok().filter(|_| is_text)?;
    Some(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rcgen::{DistinguishedName, DnType, SerialNumber};

    fn made() -> Vec<u8> {
        let mut params = rcgen::CertificateParams::new(vec!["pool".to_owned()]).unwrap();
        let mut whose = DistinguishedName::new();
        whose.push(DnType::CommonName, "pool.example.com");
        whose.push(DnType::OrganizationName, "Gärtnerei");
        whose.push(DnType::CountryName, "DE");
        params.distinguished_name = whose;
        params.serial_number = Some(SerialNumber::from_slice(&[0x9f, 0x01, 0x00]));
        let key = rcgen::KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().to_vec()
    }

    #[test]
    fn a_certificate_says_whose_it_is() {
        let made = made();
        let mut holder = of(&made).unwrap();
        holder.subject.sort();
        holder.issuer.sort();
        let expected = [
            ("CommonName", "pool.example.com".to_owned()),
            ("Country", "DE".to_owned()),
            ("Organization", "Gärtnerei".to_owned()),
        ];
        assert_eq!(holder.subject, expected);
        assert_eq!(holder.issuer, expected, "it signed itself");
        assert_eq!(holder.serial, [0x9f, 0x01, 0x00]);
    }

    proptest! {
        #[test]
        fn what_is_no_certificate_is_nobodys(place: prop::sample::Index, byte: u8) {
            let whole = made();
            prop_assert_eq!(of(&whole[..place.index(whole.len())]), None);
            // Another one, or none: nothing panics.
            let mut other = whole;
            *place.get_mut(&mut other) = byte;
            std::hint::black_box(of(&other));
        }
    }
}
