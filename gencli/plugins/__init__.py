"""Stages and drafters from plug-ins: discovery, import on first use, checks, adapters, guards."""
