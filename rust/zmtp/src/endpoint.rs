//! `tcp://host:port`, the only kind of address that this client connects to.
//!
//! An [`Endpoint`] names one host that can be connected to: wildcards, which only make sense to bind, are refused
//! here rather than at the first connect. Does not resolve names, nor look for the interface of a zone. What is an
//! endpoint, and how it is spelt, is said by `tests/golden/endpoints.json`, here and in Python.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// Longest host name that DNS can carry.
const MAX_HOST_CHARS: usize = 253;
/// Longest name of a network interface on Linux.
const MAX_INTERFACE_CHARS: usize = 15;

/// A checked address. Displays in its one spelling, which parses to the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// A name or an IP address, without brackets; its zone follows a `%`, as resolvers want it.
    host: String,
    port: u16,
}

/// Why a text is no endpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// Another transport, or none.
    #[error("endpoint must begin with tcp://: {0:?}")]
    Scheme(String),
    /// No port, or nothing before it.
    #[error("endpoint must be tcp://host:port: {0:?}")]
    Shape(String),
    /// An IPv6 address whose end cannot be told from the port.
    #[error("endpoint needs brackets around its ipv6 address: {0:?}")]
    BareIpv6(String),
    /// Neither a host name nor an IP address.
    #[error("endpoint with an invalid host: {0:?}")]
    Host(String),
    /// A zone that names no interface, or that belongs to no link-local address.
    #[error(
        "endpoint zone must be an interface of a link-local ipv6 address (fe80::/10), by name or number: {0:?}"
    )]
    Zone(String),
    /// An address to bind, not to connect to.
    #[error("endpoint with a wildcard host cannot be connected to: {0:?}")]
    Wildcard(String),
    /// Not a number from 1 to 65535.
    #[error("endpoint port must be 1 to 65535: {0:?}")]
    Port(String),
}

impl Endpoint {
    /// Reads `tcp://name:port`, `tcp://1.2.3.4:port`, `tcp://[::1]:port` or `tcp://[fe80::1%25eth0]:port`, where a
    /// bare `%` will also do. A zone that begins with `25` must have it escaped.
    ///
    /// # Errors
    /// [`EndpointError`] says which part is wrong.
    pub fn parse(text: &str) -> Result<Self, EndpointError> {
        let rest = text
            .strip_prefix("tcp://")
            .ok_or_else(|| EndpointError::Scheme(text.to_owned()))?;
        let (host, port) = rest
            .rsplit_once(':')
            .ok_or_else(|| EndpointError::Shape(text.to_owned()))?;
        if host.is_empty() {
            return Err(EndpointError::Shape(text.to_owned()));
        }
        if host.contains(':') && !host.starts_with('[') {
            return Err(EndpointError::BareIpv6(text.to_owned()));
        }
        Ok(Self {
            host: checked_host(host)?,
            port: checked_port(port)?,
        })
    }

    /// The host: a lower-case name, or an IP address without brackets, as in `fe80::1%eth0`.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port, never 0.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') {
            // Bare, a zone like `253` would be read as an escaped `3`.
            write!(f, "tcp://[{}]:{port}", host.replace('%', "%25"))
        } else {
            write!(f, "tcp://{host}:{port}")
        }
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

fn checked_host(host: &str) -> Result<String, EndpointError> {
    let invalid = || EndpointError::Host(host.to_owned());
    let wildcard = || EndpointError::Wildcard(host.to_owned());
    if host == "*" || host == "[*]" {
        return Err(wildcard());
    }
    if let Some(rest) = host.strip_prefix('[') {
        let inner = rest.strip_suffix(']').ok_or_else(invalid)?;
        let (literal, zone) = match inner.split_once('%') {
            Some((literal, zone)) => (literal, Some(zone)),
            None => (inner, None),
        };
        let address: Ipv6Addr = literal.parse().map_err(|_| invalid())?;
        if address.to_canonical().is_unspecified() {
            return Err(wildcard());
        }
        return match zone.map(unescaped_zone) {
            None => Ok(address.to_string()),
            // Elsewhere a zone changes nothing: with it one socket would have two spellings.
            Some(zone) if is_zone(zone) && address.is_unicast_link_local() => {
                Ok(format!("{address}%{zone}"))
            }
            Some(_) => Err(EndpointError::Zone(host.to_owned())),
        };
    }
    if ends_in_a_number(host) {
        // Resolvers read `0`, `1.2` or `0x7f.1` as IPv4 addresses: only the full form is unambiguous.
        return match host.parse::<Ipv4Addr>() {
            Ok(address) if address.is_unspecified() => Err(wildcard()),
            Ok(address) => Ok(address.to_string()),
            Err(_) => Err(invalid()),
        };
    }
    if is_host_name(host) {
        Ok(host.to_ascii_lowercase())
    } else {
        Err(invalid())
    }
}

/// `25eth0`, left of `%25eth0`, is `eth0`.
fn unescaped_zone(zone: &str) -> &str {
    match zone.strip_prefix("25") {
        Some(rest) if !rest.is_empty() => rest,
        _ => zone,
    }
}

/// An interface's name, or its number from 1.
fn is_zone(zone: &str) -> bool {
    if zone.bytes().all(|byte| byte.is_ascii_digit()) {
        return !zone.starts_with('0') && zone.parse::<u32>().is_ok();
    }
    zone.len() <= MAX_INTERFACE_CHARS
        && zone
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

fn ends_in_a_number(host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host);
    let last = host.rsplit('.').next().unwrap_or(host);
    let hex = last
        .strip_prefix("0x")
        .or_else(|| last.strip_prefix("0X"))
        .is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
    hex || (!last.is_empty() && last.bytes().all(|byte| byte.is_ascii_digit()))
}

fn is_host_name(host: &str) -> bool {
    let dotted = host.strip_suffix('.').unwrap_or(host);
    host.len() <= MAX_HOST_CHARS
        && dotted.split('.').all(|label| {
            !label.is_empty()
                && label.len() <= 63
                && label
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
        })
}

fn checked_port(port: &str) -> Result<u16, EndpointError> {
    Some(port)
        // `parse` alone would take a sign.
        .filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))
        .and_then(|text| text.parse().ok())
        .filter(|&number| number != 0)
        .ok_or_else(|| EndpointError::Port(port.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOLDEN: &str = include_str!("../../../tests/golden/endpoints.json");

    /// The strings of the golden file under `name`; they have no escapes, so that quotes alone tell them apart.
    fn golden(name: &str) -> Vec<&'static str> {
        assert!(!GOLDEN.contains('\\'));
        let (_, rest) = GOLDEN.split_once(&format!("\"{name}\": [")).unwrap();
        let list = rest.split_once("\n  ]").unwrap().0;
        list.split('"').skip(1).step_by(2).collect()
    }

    #[test]
    fn golden_endpoints_have_one_spelling() {
        let pairs = golden("accepted");
        assert!(pairs.len() > 40 && pairs.len().is_multiple_of(2));
        for pair in pairs.chunks_exact(2) {
            let endpoint = Endpoint::parse(pair[0]).unwrap();
            assert_eq!(endpoint.to_string(), pair[1]);
            assert_eq!(pair[1].parse::<Endpoint>().unwrap(), endpoint);
        }
    }

    #[test]
    fn golden_faults_are_refused() {
        let texts = golden("refused");
        assert!(texts.len() > 40);
        for text in texts {
            assert!(Endpoint::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn tells_host_and_port_as_a_resolver_wants_them() {
        for (text, host, port) in [
            ("tcp://Localhost:1", "localhost", 1),
            ("tcp://[::1]:18000", "::1", 18000),
            ("tcp://[fe80::1%25eth0]:18000", "fe80::1%eth0", 18000),
            ("tcp://[fe80::1%25253]:65535", "fe80::1%253", 65535),
        ] {
            let endpoint = Endpoint::parse(text).unwrap();
            assert_eq!((endpoint.host(), endpoint.port()), (host, port));
        }
    }

    #[test]
    fn refuses_the_rest_with_a_reason() {
        type Reason = fn(String) -> EndpointError;
        let cases: [(&str, Reason); 27] = [
            ("", EndpointError::Scheme),
            ("127.0.0.1:5557", EndpointError::Scheme),
            ("ipc:///tmp/x", EndpointError::Scheme),
            ("inproc://x", EndpointError::Scheme),
            ("TCP://h:1", EndpointError::Scheme),
            ("tcp://", EndpointError::Shape),
            ("tcp://host", EndpointError::Shape),
            ("tcp://:5557", EndpointError::Shape),
            ("tcp://*:5557", EndpointError::Wildcard),
            ("tcp://[*]:5557", EndpointError::Wildcard),
            ("tcp://0.0.0.0:5557", EndpointError::Wildcard),
            ("tcp://[::]:5557", EndpointError::Wildcard),
            ("tcp://[::ffff:0.0.0.0]:5557", EndpointError::Wildcard),
            ("tcp://::1:5557", EndpointError::BareIpv6),
            ("tcp://[fe80::1%]:5557", EndpointError::Zone),
            ("tcp://[fe80::1%0]:5557", EndpointError::Zone),
            ("tcp://[fd00::1%eth0]:5557", EndpointError::Zone),
            ("tcp://0:5557", EndpointError::Host),
            ("tcp://0x0:5557", EndpointError::Host),
            ("tcp://1.2.3.256:5557", EndpointError::Host),
            ("tcp://[::1:5557", EndpointError::Host),
            ("tcp://user@host:5557", EndpointError::Host),
            ("tcp://a b:5557", EndpointError::Host),
            ("tcp://host:0", EndpointError::Port),
            ("tcp://host:65536", EndpointError::Port),
            ("tcp://host:+80", EndpointError::Port),
            ("tcp://host:80/", EndpointError::Port),
        ];
        for (text, reason) in cases {
            let error = Endpoint::parse(text).unwrap_err();
            assert_eq!(
                std::mem::discriminant(&error),
                std::mem::discriminant(&reason(String::new())),
                "{text}: {error}"
            );
        }
    }
}
