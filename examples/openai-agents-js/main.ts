// A voice agent of OpenAI's SDK that calls Visavis: it hears, it sees the camera, and it may ask for the time.

import { OpenAIRealtimeWebRTC, RealtimeAgent, RealtimeSession, tool } from '@openai/agents-realtime'
import { z } from 'zod'

const time = tool({
  name: 'tell_time',
  description: 'Tells the time in a city.',
  parameters: z.object({ zone: z.string().describe('Such as Europe/Rome') }),
  execute: async ({ zone }) => new Date().toLocaleTimeString('en', { timeZone: zone }),
})

const agent = new RealtimeAgent({
  name: 'Friend',
  instructions: 'You are on a video call. Be brief.',
  tools: [time],
})

/** Call a server, given its address and a secret that your own server has asked it for (`ek_…`). */
export async function call(server: string, secret: string, player: HTMLAudioElement): Promise<RealtimeSession> {
  const media = await navigator.mediaDevices.getUserMedia({ audio: true, video: { width: 640, height: 360 } })
  const [camera] = media.getVideoTracks()
  const transport = new OpenAIRealtimeWebRTC({
    baseUrl: `${server}/v1/realtime/calls`,
    mediaStream: media,
    audioElement: player,
    // The SDK sends the microphone alone: this hook is where the camera comes in.
    changePeerConnection: (connection) => {
      if (camera !== undefined) connection.addTransceiver(camera, { direction: 'sendonly' })
      return connection
    },
  })
  const session = new RealtimeSession(agent, { transport })
  session.on('history_updated', (history) => {
    for (const item of history) if (item.type === 'message') console.log(item.role, item.content)
  })
  await session.connect({ apiKey: secret })
  return session
}
